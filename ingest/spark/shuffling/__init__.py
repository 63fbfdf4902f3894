"""The shuffle of a batch's rows to the tasks that write them."""
