// Answers as a test that looks at tensors has them (customary_rules.h): of kernels and codecs the
// tensors, codes as the values they stand for; of caches what the last operation that was judged
// returned.

#ifndef TOOLS_CAMPAIGN_PLAIN_ANSWERS_H_
#define TOOLS_CAMPAIGN_PLAIN_ANSWERS_H_

#include <cstdint>
#include <vector>

#include "reference/prefix/run_history.h"
#include "reference/trace/run_trace.h"
#include "tools/campaign/customary_rules.h"
#include "tools/corridor/evaluate_case.h"

namespace kvcheck {

// Elements whose bytes differ; all of them where a tensor is missing or of another type or shape.
int64_t DifferentElements(const MemorySink& a, const MemorySink& b);

// Of attention's `out`: the elements of which something is promised. Empty: all, as of codecs.
std::vector<bool> PromisedElements(const Question& question);
PlainAnswer PlainAnswerOf(const Question& question, const MemorySink& answer,
                          const std::vector<bool>& promised);

// What a case of operations showed: of a trace the stored K and V of every retained token of a
// state, or an output; of a history the rows of a request.
struct SeenOfCase {
  int64_t number = -1;  // of what was shown before and with it, from 0; -1: nothing
  PlainAnswer answer;
};
// The last that is shown before the trace ends or fails; a legal call that was refused is one too.
SeenOfCase LastSeen(const CacheCase& c, TraceRunner* runner);
SeenOfCase LastSeen(const PrefixCase& c, HistoryRunner* runner);
// That of this number; empty where there is none.
SeenOfCase SeenAt(const CacheCase& c, TraceRunner* runner, int64_t number);
SeenOfCase SeenAt(const PrefixCase& c, HistoryRunner* runner, int64_t number);

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_PLAIN_ANSWERS_H_
