"""Other systems, spoken to over the seams: what a machine's provider knows of it, and what LINSTOR
knows of volumes."""
