"""Register tables as pages and in LaTeX; the report and other packages use the same functions that write them."""

from tandem.config.table_layouts import TABLE_FORMATS

TABLE_FORMATS[".tex"] = "extras.report.table_files:write_table_latex"
TABLE_FORMATS[".html"] = "extras.report.table_files:write_table_page"
