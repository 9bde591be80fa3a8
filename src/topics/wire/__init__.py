"""JSON shapes shared by every interface. Pure: no files, sockets, clocks or threads."""
