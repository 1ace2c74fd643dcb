"""Late interaction: texts of several vectors, which are compared one by one."""
