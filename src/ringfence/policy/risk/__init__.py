"""Risk: how code looks before it runs. Advice for choosing a wall and for asking a person; never the wall itself."""
