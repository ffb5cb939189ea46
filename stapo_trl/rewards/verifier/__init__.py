"""From a response and a gold answer to a verdict, in bounded time."""
