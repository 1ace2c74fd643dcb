"""Orders of a table's rows, and what its systems cost."""

from tandem.config.table_layouts import TABLE_PARTS

TABLE_PARTS["orders"] = "contrib.table_parts.row_orders:fill_orders"
TABLE_PARTS["costs"] = "contrib.table_parts.system_costs:read_costs"
