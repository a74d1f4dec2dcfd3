"""The command line: thin commands; all rendering is in `terminal` and `live`."""
