"""What an agent left behind that another program would run later."""
