"""Reads rows from the hub, folders and files."""
