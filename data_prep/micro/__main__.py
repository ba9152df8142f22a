"""``python -m data_prep.micro``."""

import sys

from data_prep.micro.suite import main

sys.exit(main())
