"""`python -m evertable`."""

import sys

from evertable.cli.main import main

sys.exit(main())
