"""Public measurements that others have reported on, fetched only when they are called."""

from itofit.datasets.klein2015 import klein2015 as klein2015
