"""Pictures: each function takes an axis, draws on it and returns it."""

from itofit.plot.axes import clouds as clouds
from itofit.plot.axes import descent as descent
from itofit.plot.axes import drift_field as drift_field
from itofit.plot.axes import loss_history as loss_history
from itofit.plot.axes import marginals as marginals
from itofit.plot.axes import passes as passes
from itofit.plot.axes import undetermined_field as undetermined_field
from itofit.plot.axes import vector_field as vector_field
from itofit.plot.forecast import forecast_figure as forecast_figure
from itofit.plot.forecast import save_figure as save_figure
