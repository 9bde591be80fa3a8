"""The `/v0` API: who may ask what, and what each call answers."""
