"""biasbed: does a training method really make an image classifier rely less on texture?"""

import os

__version__ = "0.1.0"

# MLflow and the library of timm's models report how they are used, unless told otherwise before they are imported. Set
# here, it holds in every process that imports this package and in all that it starts.
for _name in ("MLFLOW_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK"):
    os.environ[_name] = "true"
