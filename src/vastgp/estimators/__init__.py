"""What every estimator inherits: data in and out, arguments, scaling, predictions by tiles, files, the registry."""
