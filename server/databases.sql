-- Read once, when the database's volume is new; `mlflow` is there by then.
CREATE DATABASE optuna;
