"""Teaching labs: what there is, starting one, grading a student's folder from its runs, answers and code."""
