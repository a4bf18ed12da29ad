TRACES = []
