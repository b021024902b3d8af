"""Public measurements that others have reported on, fetched only when asked for."""

from itofit.datasets.klein2015 import klein2015 as klein2015
