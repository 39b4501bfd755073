"""Measured quality: benchmark tasks, a sandbox for the code they run, and the loop that scores an engine."""
