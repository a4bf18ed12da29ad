// Draws traces: sequences of operations on caches of every layout and format, steered into the rare
// states of probes.h and mixed with purely random calls, illegal ones included. What is drawn is a
// pure function of (seed, index) and the options, so that a case is named by two numbers. Built for
// millions of traces: a drawer keeps its memory.

#ifndef FUZZ_DRAW_TRACE_H_
#define FUZZ_DRAW_TRACE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "reference/spec/cache_space.h"
#include "reference/spec/trace.h"

namespace kvcheck {

struct TraceDrawOptions {
  // Patterns, `*` standing for any characters, over LayoutVariants(); empty: all.
  std::vector<std::string> layouts;
  // Patterns over the texts of CacheFormats() (NamesCacheFormat): K and V both match one of them;
  // empty: all.
  std::vector<std::string> formats;
  // kAny: one trace in three never holds more than one row. kSingle: no cache ever has more.
  // kBatch: caches start with several rows, or with none.
  SpaceRows rows = SpaceRows::kAny;
  // What the implementation has; each trace is drawn from one of them, by turns, as far as the
  // patterns and `rows` leave something of it. Empty: everything.
  std::vector<CacheSpace> spaces{};
  int64_t max_operations = 20;  // a trace has 6 to max_operations, equally often
};

class TraceDrawer {
 public:
  // Errors: kIllegalCase for a pattern that matches nothing, or fewer than 1 operation; kUsage
  // where no space has what the options ask for, naming what there is.
  explicit TraceDrawer(const TraceDrawOptions& options = {});
  ~TraceDrawer();

  CacheCase Draw(uint64_t seed, uint64_t index);

 private:
  class Draft;
  std::unique_ptr<Draft> draft_;
};

// One trace alone.
CacheCase DrawTrace(uint64_t seed, uint64_t index, const TraceDrawOptions& options = {});

}  // namespace kvcheck

#endif  // FUZZ_DRAW_TRACE_H_
