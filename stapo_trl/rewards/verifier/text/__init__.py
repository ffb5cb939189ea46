"""LaTeX and words as text: brackets, notation, symbols and quantities."""
