"""What was observed: clouds of points at a few times."""

from itofit.snapshots.anndata_file import from_anndata as from_anndata
from itofit.snapshots.cells import CellKeywords as CellKeywords
from itofit.snapshots.cells import CellSelection as CellSelection
from itofit.snapshots.clouds import Snapshots as Snapshots
from itofit.snapshots.files import read_snapshots as read_snapshots
from itofit.snapshots.files import write_snapshots as write_snapshots
from itofit.snapshots.paired import PairedSnapshots as PairedSnapshots
from itofit.snapshots.scaling import Scaling as Scaling
from itofit.snapshots.split import split_rows as split_rows
