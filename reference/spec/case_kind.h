// The kinds of cases, and tables of what a room does with each: a row a kind, so that a new kind is
// a row and no further test of the kind.

#ifndef REFERENCE_SPEC_CASE_KIND_H_
#define REFERENCE_SPEC_CASE_KIND_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "reference/spec/case.h"

namespace kvcheck {

// In the order of Case's alternatives.
enum class CaseKind : uint8_t { kCodec, kAttention, kTensor, kCache, kPrefix };
inline constexpr size_t kCaseKinds = std::variant_size_v<Case>;

inline CaseKind KindOf(const Case& c) { return static_cast<CaseKind>(c.index()); }
inline CaseKind KindAt(size_t index) { return static_cast<CaseKind>(index); }
std::string_view Name(CaseKind kind);
std::optional<CaseKind> FindCaseKind(std::string_view name);
// Whether implementations answer cases of the kind; else stored tensors alone do.
bool IsAsked(CaseKind kind);
// Whether cases of the kind have tensors (InputSpecs, OutputSpecs); a trace has none.
bool HasTensors(CaseKind kind);
// Whether cases of the kind are judged under a plan and a profile that somebody names, and not
// those of the implementation alone.
bool HasPlan(CaseKind kind);
bool HasProfile(CaseKind kind);

// Rows in the order of CaseKind.
template <typename Row>
struct KindTable {
  std::array<Row, kCaseKinds> rows;
  const Row& operator[](CaseKind kind) const { return rows[static_cast<size_t>(kind)]; }
  Row& operator[](CaseKind kind) { return rows[static_cast<size_t>(kind)]; }
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_CASE_KIND_H_
