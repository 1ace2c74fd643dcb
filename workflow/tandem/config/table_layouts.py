"""What is shown: measures, layouts of papers' tables and statistics, tolerance bands."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from tandem.config.base import Items, Section, problem
from tandem.plugins import Declarations

# By ending of a file: `module:function` that returns the file's text from a filled table, its grids of texts and the
# CSV's path. CSV, JSON and Markdown are always written.
TABLE_FORMATS: Declarations[str] = Declarations()
# By key of a layout: `module:function` that computes what the key asks for. `costs` is a function of a score artifact,
# `orders` of a filled table's layout, columns, positions and blocks of scores.
TABLE_PARTS: Declarations[str] = Declarations()
_USUAL = ("RR@10", "nDCG@10", "Success@1", "Success@50", "R@50", "R@100", "R@1000", "AP")


class Score(Section):
    """What is measured."""

    split: str | None = Field(
        None, description="null: the dataset's `score_split`, else test, else dev"
    )
    measures: Items[str] | None = Field(
        None, min_length=1, description="null: the dataset's, else `usual`"
    )
    usual: Items[str] = Field(
        _USUAL, min_length=1, description="measures of datasets that name none"
    )


class PrintedTable(Section):
    """Where printed.csv has the printed values."""

    source: str = Field(description="the paper")
    table: str = Field(description="its table")


class PrintedSystem(Section):
    """Which row of printed.csv a row of the table is."""

    system: str = Field(description="as printed")
    setting: str = Field("", description="as printed, where a system is printed in several")


class RowReference(Section):
    """A row of the same table."""

    system: str = Field(description="its system")
    first_stage: str = Field("", description="its first stage")

    @property
    def id(self) -> tuple[str, str]:
        """What distinguishes the row from every other."""
        return self.system, self.first_stage


def _row_named(value: Any) -> Any:
    return {"system": value} if isinstance(value, str) else value


_row = BeforeValidator(_row_named, json_schema_input_type=str | RowReference)
RowNamed = Annotated[RowReference, _row]


class Order(Section):
    """An order of two rows that papers report; the table states whether it holds here."""

    claim: str = Field(description="in words: `dense > lexical`")
    higher: RowNamed = Field(
        description="the row that is better by it: its system, or system and first stage"
    )
    lower: RowNamed = Field(description="the row that is worse by it")


class Paper(Section):
    """The paper of a table."""

    citation: str = Field(description="authors, title, year")
    table: str = Field(description="which of its tables")


class PrintedOn(Section):
    """The dataset that the paper's numbers are of."""

    dataset: str = Field(description="name in the catalogue")
    name: str = Field(description="as the paper names it")
    split: str = Field(description="as the paper names it")


class TableColumn(Section):
    """A column."""

    measure: str = Field(description="as ir-measures names it")
    name: str | None = Field(None, description="heading; absent: the measure")
    dataset: str = Field("", description="absent: the configuration's")
    dataset_name: str = Field("", description="heading of the columns of a dataset")
    split: str = Field("", description="of the paper's numbers; what is measured: `splits`")
    setting: str = Field("", description="the printed values' setting")
    printed: bool = Field(True, description="false: the paper prints nothing in this column")


class SplitColumns(Section):
    """The queries that some columns are of."""

    of: str = Field("", description="whose; absent: the configuration's dataset")
    split: str = Field(
        description="the split; where the searched dataset lacks it, its columns are not measured"
    )


class TableRow(RowReference):
    """A row."""

    system: str = Field(description="heading")
    first_stage: str = Field("", description="heading, of re-rankers")
    family: str = Field("", description="kind of system; shown where any row has one")
    run: str | None = Field(None, description="the run that is scored")
    printed: str | PrintedSystem | dict[str, float | None] | None = Field(
        None, description="by column, in the unit of our values, or the system in printed.csv"
    )
    with_: dict[str, object] = Field(
        {}, alias="with", description="dotted path of the configuration → its value here"
    )
    with_own: dict[str, object] = Field(
        {}, description="the same, only where the paper's own dataset is searched"
    )
    columns: Items[str] = Field(
        (), description="the datasets of the columns that it fills; absent: all"
    )
    dataset: str = Field("", description="absent: the column's")
    quoted: bool = Field(False, description="only printed values, no run")
    baseline: RowReference | None = Field(
        None, description="what it is tested against; absent: its first stage's row"
    )
    hidden: bool = Field(False, description="computed, but not shown")
    labels: Literal["corrected"] | None = Field(
        None, description="scored by the annotators' corrected labels"
    )
    variant: Literal["dissimilar"] | None = Field(None, description="on a variant of the dataset")


class TableLayout(Section):
    """A table's layout: config/papers/<paper>/<table>.yaml."""

    title: str = Field(description="heading")
    note: str = Field("", description="text below the table")
    paper: Paper | None = Field(None, description="the paper that prints it")
    printed_on: PrintedOn | None = Field(
        None, description="the dataset that the paper's numbers are of"
    )
    printed_from: PrintedTable | None = Field(
        None, description="where printed.csv has the printed values"
    )
    recipes: Items[str] = Field((), description="recipes that its runs need")
    same: dict[str, Items[str]] = Field(
        {}, description="a dataset of the paper → others of the same collection"
    )
    configs: dict[str, str] = Field(
        {}, description="a dataset of the paper → the configuration file for it"
    )
    splits: dict[str, SplitColumns] = Field(
        {}, description="a dataset of columns that is a split of another → which"
    )
    belongs_to: Items[str] = Field(
        (),
        description="shipped configurations that it is laid out for, each as `--configfile` takes its files",
    )
    skip_unknown: bool = Field(
        False, description="leave out rows of runs that the configuration does not have"
    )
    trained_elsewhere: bool = Field(
        False,
        description="its models come from another dataset than the searched one: refused where they do not",
    )
    subset: Literal["similar", "others", "pooled"] | None = Field(
        None,
        description="only queries that have a similar training query, that have none, or that were pooled",
    )
    decimals: int = Field(2, ge=0, le=4, description="of the printed values; ours have two")
    costs: bool = Field(
        False,
        description="show what each system costs: bytes searched, ms a query, training seconds",
    )
    baseline: RowReference | None = Field(
        None, description="what rows without one of their own are tested against"
    )
    columns: Items[TableColumn] = Field((), description="absent: the measures that are scored")
    rows: Items[TableRow] = Field(min_length=1, description="from top to bottom")
    orders: Items[Order] = Field(
        (), description="orders of two rows that are tested below the table"
    )
    systems: Literal["untrained", "all"] | None = Field(
        None,
        description="further rows: the configuration's `systems`, all or those that need no training",
    )

    @model_validator(mode="after")
    def _parts_exist(self) -> Self:
        for key in ("costs", "orders"):
            if getattr(self, key) and key not in TABLE_PARTS:
                raise problem(
                    f".{key}: nothing computes it; leave it out, or load a plugin that does"
                )
        return self


# of a measured band: its rule, the least and the largest width, in points
DEVIATIONS, EXACT, WIDEST = 3.0, 0.02, 3.0


class Band(Section):
    """How near a number must come to what is expected: an entry of config/papers/bands.yaml.

    It applies to every number that fits all of its keys from `table` to `measure`. What was measured here has `sd` and
    no tolerance: the tolerance is always three standard deviations over seeds, and a band of more than 3 points is
    refused.
    """

    table: str | None = Field(None, description="paper/table")
    row: str | None = Field(None, description="as the layout names the system")
    first_stage: str | None = Field(None, description="as the layout names it")
    recipe: str | None = Field(None, description="the row's run")
    dataset: str | None = Field(
        None, description="where it is searched; absent: only where nothing stands in"
    )
    split: str | None = Field(None, description="of the queries")
    queries: int | None = Field(None, ge=1, description="how many are scored")
    measure: str | None = Field(None, description="as ir-measures names it")
    value: float | None = Field(
        None,
        description="in percent, except gains and counts (DCG@k, NumRet); absent: what the paper prints",
    )
    tolerance: float | None = Field(None, ge=0, description="|ours - value| up to this is a match")
    near: float | None = Field(None, ge=0, description="up to this it is near, beyond it is off")
    sd: float | None = Field(
        None, ge=0, description="of what was measured here: standard deviation over the seeds"
    )
    source: str = Field(
        description="where value and tolerance come from; of what was measured here the page"
    )
    seeds: int | None = Field(
        None, ge=2, description="of what was measured here: how many; absent where sd is 0"
    )
    deviations: Items[str] = Field((), description="what differs from the paper")

    @property
    def width(self) -> float:
        """How far from the expected value a number may be, in percent points."""
        return self.tolerance or 0.0 if self.sd is None else max(DEVIATIONS * self.sd, EXACT)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.dataset is not None and self.value is None:
            raise problem(f": names dataset {self.dataset}, but no value that is expected there")
        if self.sd is None:
            if self.seeds is not None:
                raise problem(
                    ".sd is missing: what was measured with several seeds has their standard deviation"
                )
            if self.tolerance is None or self.near is None:
                raise problem(f".{'tolerance' if self.tolerance is None else 'near'} is missing")
            if self.near < self.tolerance:
                raise problem(f".near is {self.near:g}, below tolerance ({self.tolerance:g})")
            return self
        if self.tolerance is not None or self.near is not None:
            rule = "what was measured here (sd) has three standard deviations"
            raise problem(f".tolerance: {rule}; leave tolerance and near out")
        if self.dataset is None:
            raise problem(".dataset is missing: what was measured here was measured on one")
        if self.sd and self.seeds is None:
            raise problem(".seeds is missing: sd is a deviation over seeds")
        if (wide := DEVIATIONS * self.sd) > WIDEST:
            raise problem(
                f".sd is {self.sd:g}: three of them accept anything within {wide:.1f} points; measure more seeds"
            )
        return self


# Files that a user may write apart from the configuration: name of the schema → the model, and the heading of its keys
# in the reference.
LAYOUT_FILES: Declarations[tuple[type[Section], str]] = Declarations(
    [("layout", (TableLayout, "Layouts of tables")), ("bands", (Band, "Tolerance bands"))]
)
