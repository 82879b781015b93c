"""Weight formats that training methods save."""
