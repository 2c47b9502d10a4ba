"""Images by Apptainer's own definition files, as people write them."""
