// Which operations an implementation of caches has, for which layouts and formats: the table of
// `kvcheck list --caches`. A cell is not a claim: for each format a short trace that needs the
// operation was run beside the model, on one row and on several, and judged. What an implementation
// states no space for is not asked.

#ifndef TOOLS_CAMPAIGN_CACHE_COVERAGE_H_
#define TOOLS_CAMPAIGN_CACHE_COVERAGE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reference/spec/cache_implementation.h"
#include "reference/spec/kv_format.h"
#include "reference/spec/trace.h"

namespace kvcheck {

// Every operation but `drop` and `damage`, which are of the language and not of caches.
std::vector<CacheOpKind> CoveredOperations();

// The formats (of K and of V alike) of ListedKvFormats() with which an operation passed.
struct CoverageCell {
  int64_t plain = 0;
  int64_t affine = 0;
  int64_t failed = 0;  // formats with which the trace ran and was judged wrong
  int64_t lost = 0;    // formats with which the process of the implementation was lost
};

struct CoverageRow {
  std::string layout;  // "ring:w=W:keep=K"
  bool is_batch = false;
  std::vector<CoverageCell> cells;  // beside CoveredOperations()
};

// A trace that needs the operation, in a cache of `rows` rows (1 or more).
CacheCase CoverageTrace(CacheOpKind op, const CacheLayout& layout, const KvFormat& format,
                        int64_t rows);
// The same as one of the spaces has it, with their types, heads and options; nullopt: none has it.
// Without spaces: as it is.
std::optional<CacheCase> CoverageTrace(std::span<const CacheSpace> spaces, CacheOpKind op,
                                       const CacheLayout& layout, const KvFormat& format,
                                       int64_t rows);

std::vector<CoverageRow> CoverageOf(CacheFactory* factory);
// Lines of a table; "all": every format, "plain", "coded": these alone, "-": none, else how many.
std::string CoverageText(const std::string& implementation, const std::vector<CoverageRow>& rows);

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_CACHE_COVERAGE_H_
