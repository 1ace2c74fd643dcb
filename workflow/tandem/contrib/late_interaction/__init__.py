"""Late interaction: a text has several vectors, which are compared one by one."""
