// The state of a cache as a process told it (STATE of protocol.md), checked and made a StepView.

#ifndef TOOLS_PROCESS_REMOTE_STATE_H_
#define TOOLS_PROCESS_REMOTE_STATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "reference/spec/cache_implementation.h"
#include "tools/process/supervised_child.h"
#include "tools/process/wire_message.h"

namespace kvcheck {

class RemoteState {
 public:
  // bytes: of the frame that holds the value; kept. k, v: the formats of the cache where it does
  // not name them itself. Errors: WireError, for anything that does not fit itself or the setup's
  // heads and dimensions; the state is then unspecified.
  void Read(const WireValue& value, std::shared_ptr<const Message> bytes, const CacheSetup& setup,
            const KvFormat& k, const KvFormat& v);
  // Into this object, valid until the next Read.
  void Show(StepView* view) const;
  // Retained tokens of a row; StepView::kUnknown: it cannot tell.
  int64_t RetainedTokens(int64_t row) const;

 private:
  struct Part {
    KvFormat format = PlainFormat{};
    Planes planes;
    std::vector<const std::byte*> bytes;  // of the planes; empty: not shown
  };

  void ReadPart(const WireValue& value, std::string_view name, int64_t dim, const KvFormat& format,
                const CacheSetup& setup, Part* part);
  void ReadMasks(const WireValue& value);
  StoredVectors Vectors(const Part& part) const;

  std::shared_ptr<const Message> bytes_;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  int64_t queries_ = 0;
  int64_t kv_heads_ = 0;
  Part k_, v_;
  std::optional<CacheLayout> layout_;
  bool has_retained_ = false, has_visible_ = false;
  std::vector<uint64_t> retained_, visible_;
  bool has_offsets_ = false, has_unfed_ = false, has_held_ = false, probed_ = false;
  std::vector<int64_t> offsets_, unfed_, held_;
  int64_t size_ = StepView::kUnknown;
  int64_t live_bytes_ = StepView::kUnknown;
  int64_t capacity_bytes_ = StepView::kUnknown;
  Known empty_ = Known::kCannotTell;
  Known trimmable_ = Known::kCannotTell;
  Known pending_ = Known::kCannotTell;
};

}  // namespace kvcheck

#endif  // TOOLS_PROCESS_REMOTE_STATE_H_
