"""Methods of training that plain training does not need."""
