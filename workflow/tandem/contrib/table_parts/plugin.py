"""Register the orders of a table's rows, and the costs of its systems."""

from tandem.config.table_layouts import TABLE_PARTS

TABLE_PARTS["orders"] = "contrib.table_parts.row_orders:fill_orders"
TABLE_PARTS["costs"] = "contrib.table_parts.system_costs:read_costs"
