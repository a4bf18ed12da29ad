// Steps over the list of operations: what goes, what becomes one, what is called how.

#include "fuzz/shrink_steps.h"

#include <algorithm>
#include <array>
#include <utility>

namespace kvcheck {
namespace {

CacheCase Without(const CacheCase& c, size_t begin, size_t end) {
  CacheCase less;
  less.setup = c.setup;
  less.ops.reserve(c.ops.size() - (end - begin));
  for (size_t i = 0; i < c.ops.size(); ++i) {
    if (i < begin || i >= end) less.ops.push_back(c.ops[i]);
  }
  return less;
}

// The places of NamedSlots.
template <typename Use>
void ForEachSlot(CacheOp& op, Use use) {
  switch (op.kind) {
    case CacheOpKind::kDamage:
      return;
    case CacheOpKind::kLoad:
      return use(op.target);
    case CacheOpKind::kMerge:
      for (auto& operand : op.operands) use(operand);
      return use(op.target);
    case CacheOpKind::kExtend:
    case CacheOpKind::kExtract:
    case CacheOpKind::kCopy:
      use(op.slot);
      return use(op.target);
    default:
      return use(op.slot);
  }
}

bool Names(const CacheOp& op, int slot) {
  const std::vector<int> named = NamedSlots(op);
  return std::find(named.begin(), named.end(), slot) != named.end();
}

bool HasKey(const CacheOp& op) {
  return op.kind == CacheOpKind::kSave || op.kind == CacheOpKind::kLoad ||
         op.kind == CacheOpKind::kDamage;
}

// The slot that an operation fills with another cache; -1: none.
int Fills(const CacheOp& op) {
  switch (op.kind) {
    case CacheOpKind::kNew:
      return op.slot;
    case CacheOpKind::kMerge:
    case CacheOpKind::kExtract:
    case CacheOpKind::kCopy:
    case CacheOpKind::kLoad:
      return op.target;
    default:
      return -1;
  }
}

// `second` done to what `first` has made of the same slot, as one operation in place of `second`.
bool Fuse(const CacheOp& first, const CacheOp& second, CacheOp* fused) {
  *fused = second;
  if (first.kind == CacheOpKind::kAppend && second.kind == CacheOpKind::kAppend) {
    if (first.wrong != second.wrong) return false;
    fused->count = first.count + second.count;
    return true;
  }
  if (first.kind == CacheOpKind::kTrim && second.kind == CacheOpKind::kTrim) {
    fused->count = first.count + second.count;
    return first.count > 0 && second.count > 0;
  }
  if (first.kind == CacheOpKind::kAppend && second.kind == CacheOpKind::kTrim) {
    *fused = first;
    fused->count = first.count - second.count;
    return second.count > 0 && fused->count > 0;
  }
  if (first.kind == CacheOpKind::kFilter && second.kind == CacheOpKind::kFilter) {
    for (int64_t& row : fused->numbers) {
      if (row < 0 || row >= static_cast<int64_t>(first.numbers.size())) return false;
      row = first.numbers[static_cast<size_t>(row)];
    }
    return true;
  }
  return false;
}

}  // namespace

bool RemoveChunks(const CacheCase& c, const Offer& offer) {
  for (size_t size = c.ops.size() / 2; size > 0; size /= 2) {
    // The tail first: what comes after the failure is not needed.
    for (size_t end = c.ops.size(); end > 0; end -= std::min(end, size)) {
      if (offer(Without(c, end - std::min(end, size), end))) return true;
    }
  }
  return false;
}

bool RemovePairs(const CacheCase& c, const Offer& offer) {
  for (size_t i = 0; i < c.ops.size(); ++i) {
    const CacheCase without = Without(c, i, i + 1);
    for (size_t j = i; j < without.ops.size(); ++j) {
      if (offer(Without(without, j, j + 1))) return true;
    }
  }
  return false;
}

bool FuseOperations(const CacheCase& c, const Offer& offer) {
  for (size_t i = 0; i < c.ops.size(); ++i) {
    for (size_t j = i + 1; j < c.ops.size(); ++j) {
      if (!Names(c.ops[j], c.ops[i].slot)) continue;
      // The next operation that names the slot, or the one after it: a lone read in between may
      // stand before or after what the two become.
      CacheOp fused;
      if (c.ops[j].slot == c.ops[i].slot && Fuse(c.ops[i], c.ops[j], &fused)) {
        CacheCase late = Without(c, i, i + 1);
        late.ops[j - 1] = fused;
        if (offer(std::move(late))) return true;
        CacheCase early = Without(c, j, j + 1);
        early.ops[i] = fused;
        if (offer(std::move(early))) return true;
      }
    }
  }
  return false;
}

bool BypassCopies(const CacheCase& c, const Offer& offer) {
  for (size_t i = 0; i < c.ops.size(); ++i) {
    const CacheOp& op = c.ops[i];
    const int made = Fills(op);
    if (made < 0 || op.kind == CacheOpKind::kNew) continue;
    for (int source = 0; source < kSlots; ++source) {
      if (source == made) continue;
      CacheCase less = Without(c, i, i + 1);
      for (size_t j = i; j < less.ops.size(); ++j) {
        if (Fills(less.ops[j]) == made) break;
        ForEachSlot(less.ops[j], [&](int& slot) {
          if (slot == made) slot = source;
        });
      }
      if (offer(std::move(less))) return true;
    }
    // Or the result is made anew, empty, and its source need not be there.
    if (op.kind == CacheOpKind::kMerge || op.kind == CacheOpKind::kExtract ||
        op.kind == CacheOpKind::kCopy) {
      CacheCase anew = c;
      CacheOp fresh;
      fresh.slot = made;
      fresh.count = op.kind == CacheOpKind::kMerge ? static_cast<int64_t>(op.operands.size()) : 1;
      anew.ops[i] = fresh;
      if (offer(std::move(anew))) return true;
    }
  }
  return false;
}

bool RenameSlots(const CacheCase& c, const Offer& offer) {
  CacheCase renamed = c;
  std::array<int, kSlots> slots;
  std::array<int, kStateKeys> keys;
  slots.fill(-1);
  keys.fill(-1);
  int next_slot = 0;
  int next_key = 0;
  for (CacheOp& op : renamed.ops) {
    ForEachSlot(op, [&](int& slot) {
      int& name = slots[static_cast<size_t>(slot)];
      if (name < 0) name = next_slot++;
      slot = name;
    });
    if (!HasKey(op)) continue;
    int& name = keys[static_cast<size_t>(op.key)];
    if (name < 0) name = next_key++;
    op.key = name;
  }
  if (offer(std::move(renamed))) return true;
  for (size_t i = 0; i < c.ops.size(); ++i) {
    const int operands = static_cast<int>(NamedSlots(c.ops[i]).size());
    for (int operand = 0; operand < operands; ++operand) {
      for (int earlier = 0; earlier < kSlots; ++earlier) {
        CacheCase other = c;
        int at = 0;
        bool lower = false;
        ForEachSlot(other.ops[i], [&](int& slot) {
          if (at++ != operand) return;
          lower = earlier < slot;
          slot = earlier;
        });
        if (lower && offer(std::move(other))) return true;
      }
    }
  }
  return false;
}

bool RemoveRows(const CacheCase& c, const Offer& offer) {
  for (size_t i = 0; i < c.ops.size(); ++i) {
    const CacheOp& made = c.ops[i];
    if (made.kind != CacheOpKind::kNew) continue;
    for (int64_t row = made.count - 1; row >= 0; --row) {
      CacheCase less = c;
      const auto erase = [row](std::vector<int64_t>* numbers) {
        if (row < std::ssize(*numbers)) numbers->erase(numbers->begin() + row);
      };
      --less.ops[i].count;
      erase(&less.ops[i].numbers);
      for (size_t j = i + 1; j < less.ops.size() && Fills(less.ops[j]) != made.slot; ++j) {
        CacheOp& op = less.ops[j];
        if (op.slot != made.slot) continue;
        if (op.kind == CacheOpKind::kPrepare) erase(&op.numbers);
        if (op.kind == CacheOpKind::kExtract && op.count > row) --op.count;
        if (op.kind == CacheOpKind::kFilter) {
          std::erase(op.numbers, row);
          for (int64_t& taken : op.numbers) taken -= taken > row ? 1 : 0;
          break;  // from here on rows have other numbers
        }
      }
      if (offer(std::move(less))) return true;
    }
  }
  return false;
}

}  // namespace kvcheck
