"""`kalda doctor`: gathers facts of a cluster and of a machine; `kalda.inspection.doctor` judges them."""
