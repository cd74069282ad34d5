"""What the fabric is: units, models, files, shapes and addresses. Pure: importing or loading changes nothing."""
