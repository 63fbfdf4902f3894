"""What any program needs: errors, logs, the clock, threads."""
