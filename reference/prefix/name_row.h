// What a vector that should be another one is: contract.md, section 6. Looked for among every row
// of the history, and only once something is wrong.

#ifndef REFERENCE_PREFIX_NAME_ROW_H_
#define REFERENCE_PREFIX_NAME_ROW_H_

#include <cstdint>
#include <string>

#include "reference/prefix/history_result.h"
#include "reference/prefix/ledger.h"

namespace kvcheck {

struct WrongRow {
  int32_t node = -1;  // whose row it should be
  int64_t layer = 0;
  int64_t head = 0;
  TokenPart part = TokenPart::kKey;
  int64_t opened = 0;  // the operation with which the request got the row
  const std::byte* got = nullptr;
};

struct NamedRow {
  HistoryFault fault = HistoryFault::kDamaged;
  std::string text;  // "K of layer 1, head 0, position 3 is that of salt=b, ..."
};

NamedRow NameRow(const WrongRow& wrong, const Ledger& ledger);

}  // namespace kvcheck

#endif  // REFERENCE_PREFIX_NAME_ROW_H_
