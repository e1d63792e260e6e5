"""Other systems, spoken to over the seams: what a machine's provider knows of it, what its power
hangs on, and what LINSTOR knows of volumes."""
