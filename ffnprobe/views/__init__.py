"""What people see: tables in files and in the terminal, figures, pages, the explorer."""
