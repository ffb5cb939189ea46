"""Reading rows from hubs, folders and files."""
