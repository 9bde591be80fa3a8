"""JSON shapes shared by every door. Pure: no files, sockets, clocks or threads."""
