"""What people look at and take away: tables in files and in the terminal, figures, pages."""
