"""What Windows offers."""
