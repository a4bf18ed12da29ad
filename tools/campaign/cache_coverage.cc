#include "tools/campaign/cache_coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "reference/spec/error.h"
#include "reference/spec/token_groups.h"
#include "reference/trace/run_trace.h"
#include "reference/trace/trace_space.h"
#include "tools/corridor/judge_trace.h"

namespace kvcheck {
namespace {

constexpr int64_t kBatchRows = 3;

struct LayoutEntry {
  const char* text;
  CacheLayout layout;
};

const std::array<LayoutEntry, 5>& Layouts() {
  static const std::array<LayoutEntry, 5> kLayouts = {
      {{"linear", {}},
       {"linear:w=W", {LayoutKind::kLinear, 4, 0, 0}},
       {"ring:w=W", {LayoutKind::kRing, 4, 0, 0}},
       {"ring:w=W:keep=K", {LayoutKind::kRing, 4, 2, 0}},
       {"chunk:c=C", {LayoutKind::kChunk, 0, 0, 4}}}};
  return kLayouts;
}

// What comes behind "new A; append A 6" to need the operation. The last append shows that the cache
// which it left works.
std::string OperationsOf(CacheOpKind op, int64_t rows) {
  const bool one = rows == 1;
  switch (op) {
    case CacheOpKind::kNew:
    case CacheOpKind::kAppend:
      return "append A 1";
    case CacheOpKind::kPrepare:
    case CacheOpKind::kFinalize:
      return fmt::format("prepare A {}; append A 3; finalize A; append A 1", one ? "2" : "2,0,3");
    case CacheOpKind::kTrim:
      return "trim A 1; append A 1";
    case CacheOpKind::kFilter:
      return fmt::format("filter A {}; append A 1", one ? "0" : "2,0");
    case CacheOpKind::kExtend:
      return "copy A -> B; append B 2; extend A B; append A 1";
    case CacheOpKind::kMerge:
      return one ? "copy A -> B; append B 2; merge A,B -> C; append C 1"
                 : "extract A 1 -> B; append B 2; extract A 0 -> C; merge B,C -> D; append D 1";
    case CacheOpKind::kExtract:
      return fmt::format("extract A {} -> B; append B 1", one ? 0 : 2);
    case CacheOpKind::kToQuantized:
      return "to_quantized A k=affine:4:g32:f16 v=affine:8:g32:f16; append A 1";
    case CacheOpKind::kCopy:
      return "copy A -> B; append B 1";
    case CacheOpKind::kSave:
    case CacheOpKind::kLoad:
      return "save A s0; load s0 -> B; append B 1";
    case CacheOpKind::kAttend:
      return "append A 1; attend A window=3 sinks";
    case CacheOpKind::kDamage:
    case CacheOpKind::kDrop:
      break;
  }
  KVCHECK_CHECK(false, "no operation of a cache");
}

std::string CellText(const CoverageCell& cell, int64_t plain, int64_t affine) {
  if (cell.failed > 0) return "wrong";
  if (cell.lost > 0) return "lost";
  if (cell.plain == plain && cell.affine == affine) return "all";
  if (cell.plain == plain && cell.affine == 0) return "plain";
  if (cell.plain == 0 && cell.affine == affine) return "coded";
  if (cell.plain + cell.affine == 0) return "-";
  return fmt::format("{}", cell.plain + cell.affine);
}

}  // namespace

std::vector<CacheOpKind> CoveredOperations() {
  std::vector<CacheOpKind> operations;
  for (int kind = 0; kind < kCacheOpKinds; ++kind) {
    const auto op = static_cast<CacheOpKind>(kind);
    if (op != CacheOpKind::kDamage && op != CacheOpKind::kDrop) operations.push_back(op);
  }
  return operations;
}

CacheCase CoverageTrace(CacheOpKind op, const CacheLayout& layout, const KvFormat& format,
                        int64_t rows) {
  const int64_t dim = std::max<int64_t>(BlockOf(format), 32);
  return ParseCacheCase(
      fmt::format("cache layout={} k={} x=f32 hq=2 dk={} growth=2 data=tokens:1; "
                  "new A rows={}; append A 6; {}",
                  Print(layout), Print(format), dim, rows, OperationsOf(op, rows)));
}

std::optional<CacheCase> CoverageTrace(std::span<const CacheSpace> spaces, CacheOpKind op,
                                       const CacheLayout& layout, const KvFormat& format,
                                       int64_t rows) {
  CacheCase plain = CoverageTrace(op, layout, format, rows);
  if (spaces.empty()) return plain;
  for (const CacheSpace& space : spaces) {
    for (const DType x : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      CacheCase c = plain;
      c.setup.x = x;
      for (CacheOp& step : c.ops) {
        if (!space.window) step.window.reset();
        if (!space.sinks) step.sinks = false;
        // Codes as the space has them.
        if (step.kind != CacheOpKind::kToQuantized) continue;
        for (const KvFormat& codes : ListedKvFormats()) {
          const bool fits = !IsPlain(codes) && FitsTokens(codes, c.setup.k_dim);
          if (!fits || space.HasFormats(x, *step.k, *step.v)) continue;
          if (space.HasFormats(x, codes, codes)) step.k = step.v = codes;
        }
      }
      if (HasTrace(space, c)) return c;
    }
  }
  return std::nullopt;
}

std::vector<CoverageRow> CoverageOf(CacheFactory* factory) {
  const std::vector<CacheSpace> spaces = factory->GetCapabilities().spaces;
  TraceRunner runner(factory);
  const std::vector<CacheOpKind> operations = CoveredOperations();
  std::vector<CoverageRow> table;
  for (const LayoutEntry& entry : Layouts()) {
    for (const int64_t rows : {int64_t{1}, kBatchRows}) {
      CoverageRow row{entry.text, rows > 1, {}};
      for (const CacheOpKind op : operations) {
        CoverageCell cell;
        for (const KvFormat& format : ListedKvFormats()) {
          // What is refused is no operation.
          if (!KeepsGroups(entry.layout, format)) continue;
          if (!factory->Supports(op, entry.layout, format, format)) continue;
          const std::optional<CacheCase> c = CoverageTrace(spaces, op, entry.layout, format, rows);
          if (!c) continue;
          const JudgedTrace result = JudgeTrace(*c, &runner);
          cell.failed += result.outcome == Outcome::kFail && result.loss.empty() ? 1 : 0;
          cell.lost += result.loss.empty() ? 0 : 1;
          // What was declined on the way was not covered.
          if (result.outcome != Outcome::kPass || result.counts.unsupported > 0) continue;
          ++(IsPlain(format) ? cell.plain : cell.affine);
        }
        row.cells.push_back(cell);
      }
      table.push_back(std::move(row));
    }
  }
  return table;
}

std::string CoverageText(const std::string& implementation, const std::vector<CoverageRow>& rows) {
  const std::vector<KvFormat> formats = ListedKvFormats();
  const int64_t plain = std::count_if(formats.begin(), formats.end(), IsPlain);
  const int64_t affine = static_cast<int64_t>(formats.size()) - plain;
  std::string text = fmt::format(
      "operations of the caches of '{}', by layout, in one row and in batches; all: {} plain and "
      "{} "
      "coded\nformats passed beside the model\n",
      implementation, plain, affine);
  const std::vector<CacheOpKind> operations = CoveredOperations();
  constexpr int kLayoutColumns = 16;
  text += fmt::format("  {:<{}}rows ", "layout", kLayoutColumns);
  for (const CacheOpKind op : operations) text += fmt::format(" {}", Name(op));
  text += "\n";
  for (const CoverageRow& row : rows) {
    std::string line = fmt::format("  {:<{}}{:<5}", row.is_batch ? "" : row.layout, kLayoutColumns,
                                   row.is_batch ? "n" : "1");
    for (size_t i = 0; i < operations.size(); ++i) {
      line += fmt::format(" {:<{}}", CellText(row.cells[i], plain, affine),
                          std::max<size_t>(3, Name(operations[i]).size()));
    }
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace kvcheck
