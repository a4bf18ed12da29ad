#include "tools/corridor/attention_call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "reference/numerics/convert.h"
#include "tools/corridor/array_tensors.h"
#include "tools/corridor/evaluate_case.h"

namespace kvcheck {
namespace {

[[noreturn]] void RefuseCall(const std::string& name, const std::string& why) {
  throw Error(ErrorCode::kIllegalCase, why, fmt::format("array '{}'", name));
}

// The axes of an array that are called `layout`, in the order of `wanted`; one that it lacks has
// extent 1.
Array Ordered(const std::string& name, const Array& array, const std::string& layout,
              const std::string& wanted) {
  if (array.extents.size() != layout.size()) {
    RefuseCall(name, fmt::format("{} axes ({}), where layout '{}' has {}", array.extents.size(),
                                 fmt::join(array.extents, " x "), layout, layout.size()));
  }
  Array ordered = array;
  ordered.extents.clear();
  const std::vector<int64_t> strides = StridesOf(name, array);
  ordered.strides_bytes.clear();
  for (const char axis : wanted) {
    const size_t at = layout.find(axis);
    ordered.extents.push_back(at == std::string::npos ? 1 : array.extents[at]);
    ordered.strides_bytes.push_back(at == std::string::npos ? 0 : strides[at]);
  }
  return ordered;
}

void CheckLayout(const std::string& layout, const std::string& required, const char* what) {
  std::string sorted = layout;
  std::sort(sorted.begin(), sorted.end());
  std::string with_batch = "b" + required;
  std::sort(with_batch.begin(), with_batch.end());
  std::string without = required;
  std::sort(without.begin(), without.end());
  if (sorted == with_batch || sorted == without) return;
  throw Error(ErrorCode::kParse,
              fmt::format("a layout names each of the axes {} once, and b where there is a batch: "
                          "b row of the batch, h head, s token{}",
                          fmt::join(required, ", "), required.size() > 2 ? ", d channel" : ""),
              fmt::format("{} '{}'", what, layout));
}

// Elements from first to first + count along an axis.
Array Slice(const std::string& name, Array array, size_t axis, int64_t first, int64_t count) {
  if (count > array.extents[axis] - first) {
    RefuseCall(name, fmt::format("{} along an axis on which a sequence ends at {}",
                                 array.extents[axis], first + count));
  }
  array.data = static_cast<const std::byte*>(array.data) + first * array.strides_bytes[axis];
  array.extents[axis] = count;
  return array;
}

std::vector<double> Numbers(const std::string& name, const Array& array) {
  const Tensor tensor = ToTensor(name, array);
  std::vector<double> numbers(static_cast<size_t>(tensor.ElementCount()));
  DecodeTo(tensor, 0, numbers);
  return numbers;
}

std::vector<int64_t> Integers(const std::string& name, const Array& array, size_t axes) {
  if (array.dtype != DType::kInt32 && array.dtype != DType::kInt64) {
    RefuseCall(name, fmt::format("has type {}, where i32 or i64 is needed", Name(array.dtype)));
  }
  if (array.extents.size() != axes) {
    RefuseCall(name, fmt::format("{} axes, where {} has {}", array.extents.size(), name, axes));
  }
  std::vector<int64_t> integers;
  for (const double number : Numbers(name, array)) {
    // Beyond 2^53 a double is another number; no table reaches so far.
    if (!(std::fabs(number) <= 0x1p53)) RefuseCall(name, fmt::format("holds {}", number));
    integers.push_back(static_cast<int64_t>(number));
  }
  return integers;
}

// The starts of packed sequences: from 0 to `tokens`, ascending.
std::vector<int64_t> Starts(const std::string& name, const Array& array, int64_t tokens) {
  std::vector<int64_t> starts = Integers(name, array, 1);
  if (starts.size() < 2 || starts.front() != 0 || !std::is_sorted(starts.begin(), starts.end()) ||
      starts.back() > tokens) {
    RefuseCall(name,
               fmt::format("holds the starts of sequences: ascending from 0 to at most the {} "
                           "tokens there are; it holds {}",
                           tokens, fmt::join(starts, ", ")));
  }
  return starts;
}

// The term of a mask array, and the array with the axes that the term has. Extents of 1 broadcast.
// Shapes: (T), (L, T), (B, L, T), (B or 1, Hq or 1, L or 1, T).
std::string AddMaskArray(const AttentionCase& c, Array mask, Arrays* inputs) {
  const std::string name = "mask";
  mask.strides_bytes = StridesOf(name, mask);
  std::vector<int64_t> full;
  switch (mask.extents.size()) {
    case 1:
      full = {c.kv_len};
      break;
    case 2:
      full = {c.query_len, c.kv_len};
      break;
    case 3:
      full = {c.batch, c.query_len, c.kv_len};
      break;
    case 4:
      full = {c.batch, c.query_heads, c.query_len, c.kv_len};
      break;
    default:
      RefuseCall(name,
                 fmt::format("{} axes, where a mask has (T), (L, T), (B, L, T) or (B, H, L, T)",
                             mask.extents.size()));
  }
  std::vector<bool> varies;
  for (size_t axis = 0; axis < full.size(); ++axis) {
    if (mask.extents[axis] != full[axis] && mask.extents[axis] != 1) {
      RefuseCall(name, fmt::format("extents {}, where {} or 1 of each fit",
                                   fmt::join(mask.extents, " x "), fmt::join(full, " x ")));
    }
    varies.push_back(mask.extents[axis] != 1);
    if (mask.extents[axis] == 1) mask.strides_bytes[axis] = 0;
    mask.extents[axis] = full[axis];
  }
  // With axes in front, as (B, H, L, T).
  while (varies.size() < 4) {
    const bool is_batch = mask.extents.size() == 3 && varies.size() == 3;
    const size_t at = is_batch ? 1 : 0;
    const auto offset = static_cast<std::ptrdiff_t>(at);
    varies.insert(varies.begin() + offset, false);
    mask.extents.insert(mask.extents.begin() + offset, 1);
    mask.strides_bytes.insert(mask.strides_bytes.begin() + offset, 0);
  }
  const std::vector<int64_t> all = {c.batch, c.query_heads, c.query_len, c.kv_len};
  std::vector<size_t> kept;
  std::string axes;
  if (varies[1]) {
    axes = "BHLT", kept = {0, 1, 2, 3};
  } else if (varies[0] && varies[2]) {
    axes = "B1LT", kept = {0, 1, 2, 3};
  } else if (varies[0]) {
    axes = "B11T", kept = {0, 1, 2, 3};
  } else if (varies[2]) {
    axes = "LT", kept = {2, 3};
  } else {
    axes = "T", kept = {3};
  }
  Array used = mask;
  used.extents.clear();
  used.strides_bytes.clear();
  for (const size_t axis : kept) {
    const bool is_one = axes.size() == 4 && axes[axis] == '1';
    used.extents.push_back(is_one ? 1 : all[axis]);
    used.strides_bytes.push_back(mask.strides_bytes[axis]);
  }
  const bool is_bool = mask.dtype == DType::kBool;
  (*inputs)[name] = std::move(used);
  return is_bool ? "bool:" + axes : fmt::format("additive:{}:{}", axes, Name(mask.dtype));
}

// K or V with what multiplies its codes: its format, and its planes among the inputs.
KvFormat AddOperand(const std::string& name, Array codes, const std::optional<Array>& scale,
                    const AttentionCase& c, Arrays* inputs) {
  if (!scale) {
    if (!IsFloat(codes.dtype)) {
      RefuseCall(name,
                 fmt::format("has type {}: integer codes need {}_scale, other formats are judged "
                             "as a case with their planes",
                             Name(codes.dtype), name));
    }
    const DType type = codes.dtype;
    (*inputs)[name] = std::move(codes);
    return PlainFormat{type};
  }
  const std::string scale_name = name + "_scale";
  const char* code = codes.dtype == DType::kFloat8E4M3FN ? "fp8:e4m3fn"
                     : codes.dtype == DType::kFloat8E5M2 ? "fp8:e5m2"
                     : codes.dtype == DType::kInt8       ? "int8"
                                                         : nullptr;
  if (code == nullptr) {
    RefuseCall(scale_name, fmt::format("goes with codes of f8e4m3fn, f8e5m2 or i8; {} has type {}",
                                       name, Name(codes.dtype)));
  }
  if (codes.dtype != DType::kInt8) codes.dtype = DType::kUInt8;
  std::string place = "token";
  if (scale->extents.size() < 2) {
    const std::vector<double> numbers = Numbers(scale_name, *scale);
    std::vector<std::string> texts;
    for (const double number : numbers) {
      texts.push_back(fmt::format("{}", static_cast<float>(number)));
    }
    if (numbers.size() != 1 && static_cast<int64_t>(numbers.size()) != c.kv_heads) {
      RefuseCall(scale_name,
                 fmt::format("{} numbers, where one, one for each of {} heads, or one for "
                             "each vector (B, Hkv, T) fits",
                             numbers.size(), c.kv_heads));
    }
    place = (numbers.size() == 1 ? "s" : "h") + fmt::format("{}", fmt::join(texts, "/"));
  } else {
    (*inputs)[name + "_scales"] = *scale;
    // The plane has an axis of its own for the scale of a vector.
    (*inputs)[name + "_scales"].strides_bytes = StridesOf(scale_name, *scale);
    if (scale->extents.size() == 3) {
      (*inputs)[name + "_scales"].extents.push_back(1);
      (*inputs)[name + "_scales"].strides_bytes.push_back(0);
    }
  }
  (*inputs)[name + "_codes"] = std::move(codes);
  const DType row = c.out == DType::kFloat16 || c.out == DType::kBFloat16 ? c.out : DType::kFloat32;
  const std::string text = fmt::format("{}:{}:{}", code, place, Name(row));
  return ParseKvFormat(WholeLine(text));
}

// The case of one dense call; arrays (B, H, tokens, D).
DenseCall CaseOf(const AttentionCall& call, std::string name) {
  DenseCall dense;
  dense.name = std::move(name);
  AttentionCase& c = dense.c;
  c.batch = call.q.extents[0];
  c.query_heads = call.q.extents[1];
  c.query_len = call.q.extents[2];
  c.k_dim = call.q.extents[3];
  c.kv_heads = call.k.extents[1];
  c.kv_len = call.k.extents[2];
  c.v_dim = call.v.extents[3];
  c.q = call.q.dtype;
  c.out = call.out.dtype;
  c.scale = call.scale.value_or(1 / std::sqrt(static_cast<double>(c.k_dim)));
  c.softcap = call.softcap;
  if (call.sinks) c.sinks = call.sinks->dtype;
  c.alibi = call.alibi_slopes.has_value();
  c.lse = call.lse ? call.lse_kind : LseKind::kNone;
  if (call.lse && call.lse->dtype != LseType(c)) c.lse_type = call.lse->dtype;
  c.data.regime = "file";
  dense.inputs["q"] = call.q;
  c.k = AddOperand("k", call.k, call.k_scale, c, &dense.inputs);
  c.v = AddOperand("v", call.v, call.v_scale, c, &dense.inputs);
  std::string mask = call.mask;
  const bool names_array =
      mask.find("bool:") != std::string::npos || mask.find("additive:") != std::string::npos;
  if (call.mask_array && names_array) {
    dense.inputs["mask"] = *call.mask_array;
  } else if (call.mask_array) {
    const std::string term = AddMaskArray(c, *call.mask_array, &dense.inputs);
    mask = mask == "none" ? term : mask + "+" + term;
  }
  c.mask = ParseMask(WholeLine(mask));
  if (call.sinks) dense.inputs["sinks"] = *call.sinks;
  if (call.alibi_slopes) dense.inputs["alibi_slopes"] = *call.alibi_slopes;
  dense.outputs["out"] = call.out;
  if (call.lse) dense.outputs["lse"] = *call.lse;
  Validate(c);
  return dense;
}

// The rows that a block table lists for one sequence, one after the other.
Array Gathered(const std::string& name, const Array& pages, std::span<const int64_t> table,
               int64_t tokens, std::deque<Tensor>* own) {
  const int64_t page_tokens = pages.extents[2];
  if (page_tokens < 1) RefuseCall(name, "pages of no tokens");
  const auto needed = static_cast<size_t>((tokens + page_tokens - 1) / page_tokens);
  if (needed > table.size()) {
    RefuseCall("block_table", fmt::format("{} pages of {} tokens for a sequence of {} tokens",
                                          table.size(), page_tokens, tokens));
  }
  Array joined = pages;
  joined.extents = {1, pages.extents[1], tokens, pages.extents[3]};
  joined.strides_bytes.clear();
  Tensor& tensor = own->emplace_back(pages.dtype, Shape::Unnamed(joined.extents));
  const auto row_bytes = static_cast<size_t>(joined.extents[3]) * SizeInBytes(pages.dtype);
  for (size_t i = 0; i < needed; ++i) {
    if (table[i] < 0 || table[i] >= pages.extents[0]) {
      RefuseCall("block_table",
                 fmt::format("page {} of {}, which has {}", table[i], name, pages.extents[0]));
    }
    const int64_t first = static_cast<int64_t>(i) * page_tokens;
    const int64_t count = std::min(page_tokens, tokens - first);
    const Tensor page =
        ToTensor(name, Slice(name, Slice(name, pages, 0, table[i], 1), 2, 0, count));
    for (int64_t head = 0; head < joined.extents[1]; ++head) {
      std::memcpy(tensor.bytes.data() + static_cast<size_t>(head * tokens + first) * row_bytes,
                  page.bytes.data() + static_cast<size_t>(head * count) * row_bytes,
                  static_cast<size_t>(count) * row_bytes);
    }
  }
  joined.data = tensor.bytes.data();
  return joined;
}

// The pages of each sequence, of a table with a row for each or of one list with their starts.
class PageLists {
 public:
  explicit PageLists(const AttentionCall& call)
      : pages_(Integers("block_table", *call.block_table, call.block_starts ? 1 : 2)) {
    if (call.block_starts) {
      starts_ = Starts("block_starts", *call.block_starts, static_cast<int64_t>(pages_.size()));
    } else {
      for (int64_t row = 0; row <= call.block_table->extents[0]; ++row) {
        starts_.push_back(row * call.block_table->extents[1]);
      }
    }
  }
  int64_t sequences() const { return static_cast<int64_t>(starts_.size()) - 1; }
  std::span<const int64_t> Of(size_t sequence) const {
    const auto first = static_cast<size_t>(starts_[sequence]);
    return std::span(pages_).subspan(first, static_cast<size_t>(starts_[sequence + 1]) - first);
  }

 private:
  std::vector<int64_t> pages_;
  std::vector<int64_t> starts_;
};

// The part (L, T) of a list of masks that begins at *at, which then is behind it.
Array TakeMask(const Array& masks, int64_t query_len, int64_t kv_len, int64_t* at) {
  if (kv_len > 0 && query_len > (masks.extents[0] - *at) / kv_len) {
    RefuseCall("mask", fmt::format("{} elements, which do not reach to the {} x {} of a sequence",
                                   masks.extents[0], query_len, kv_len));
  }
  Array mask = Slice("mask", masks, 0, *at, query_len * kv_len);
  *at += query_len * kv_len;
  const int64_t stride = mask.strides_bytes[0];
  mask.extents = {query_len, kv_len};
  mask.strides_bytes = {kv_len * stride, stride};
  return mask;
}

// A sequence without keys as one with a key that no query may attend: its rows are fully masked,
// and a case has at least one key.
void HideOnlyKey(AttentionCall* one, std::deque<Tensor>* own) {
  for (Array* array : {&one->k, &one->v}) {
    array->extents = {1, array->extents[1], 1, array->extents[3]};
    array->strides_bytes.clear();
    array->data = own->emplace_back(array->dtype, Shape::Unnamed(array->extents)).bytes.data();
  }
  one->mask = "none";
  const Tensor& hidden = own->emplace_back(DType::kBool, Shape::Unnamed({1}));
  one->mask_array = Array{DType::kBool, {1}, hidden.bytes.data()};
}

// Whether pages of so many heads and tokens can be those of the call: they hold each sequence, and
// its queries' heads are a multiple of theirs.
bool PagesFit(int64_t query_heads, int64_t heads, int64_t page_tokens, const PageLists& pages,
              const std::vector<int64_t>& lens) {
  if (heads < 1 || page_tokens < 1 || query_heads % heads != 0) return false;
  for (size_t i = 0; i < lens.size(); ++i) {
    const auto listed = static_cast<int64_t>(pages.Of(i).size());
    if (lens[i] > 0 && (lens[i] - 1) / page_tokens + 1 > listed) return false;
  }
  return true;
}

// Pools whose heads and tokens are in each other's place are a mistake of the call, and no wrong
// table: k and v are read in the order of the layout.
void CheckOrderOfPages(const AttentionCall& call, const PageLists& pages,
                       const std::vector<int64_t>& lens) {
  const int64_t heads = call.k.extents[1];
  const int64_t tokens = call.k.extents[2];
  if (PagesFit(call.q.extents[1], heads, tokens, pages, lens) ||
      !PagesFit(call.q.extents[1], tokens, heads, pages, lens)) {
    return;
  }
  const bool heads_first = call.layout.find('h') < call.layout.find('s');
  RefuseCall(
      "k, v",
      fmt::format("layout '{0}' reads the pages as {1} tokens of {2} heads, which do not fit "
                  "the {3} heads of q and the lengths of the sequences; as {2} tokens of "
                  "{1} heads they do: they are in the order {4}, which FlashInfer calls {5}. "
                  "Give k and v with these two axes exchanged (k.swapaxes(-3, -2), a view)",
                  call.layout, tokens, heads, call.q.extents[1],
                  heads_first ? "(pages, tokens, heads, D)" : "(pages, heads, tokens, D)",
                  heads_first ? "NHD" : "HND"));
}

// Packed sequences: where each starts, and how many tokens it has.
struct PackedRows {
  std::vector<int64_t> starts;  // empty: not packed
  std::vector<int64_t> lens;

  int64_t count() const { return static_cast<int64_t>(lens.size()); }
};

// letter: "q" or "k". tokens: those of the array, padding included.
PackedRows PackedRowsOf(const std::string& letter, const std::optional<Array>& sums,
                        const std::optional<Array>& padded, int64_t tokens, DenseCalls* dense) {
  const std::string name = "cu_seqlens_" + letter;
  PackedRows rows;
  if (!sums) {
    if (!padded) return rows;
    throw Error(ErrorCode::kMissingData,
                fmt::format("goes with {}, which says how long each sequence is", name),
                fmt::format("array '{}_padded'", name));
  }
  const std::vector<int64_t> ends = Starts(name, *sums, tokens);
  rows.starts = padded ? Starts(name + "_padded", *padded, tokens) : ends;
  if (rows.starts.size() != ends.size()) {
    RefuseCall(name + "_padded", fmt::format("{} sequences, {} has {}", rows.starts.size() - 1,
                                             name, ends.size() - 1));
  }
  for (size_t i = 0; i + 1 < ends.size(); ++i) {
    rows.lens.push_back(ends[i + 1] - ends[i]);
    const int64_t room = rows.starts[i + 1] - rows.starts[i];
    if (rows.lens[i] <= room) continue;
    RefuseCall(name + "_padded", fmt::format("sequence {} has {} tokens by {} and room for {}", i,
                                             rows.lens[i], name, room));
  }
  if (letter != "q") return rows;
  const int64_t behind = tokens - rows.starts.back();
  const int64_t between = rows.starts.back() - ends.back();
  if (behind > 0) {
    dense->not_judged.push_back(fmt::format("{} of {} tokens are behind the last sequence of {}",
                                            behind, tokens, padded ? name + "_padded" : name));
  }
  if (between > 0) {
    dense->not_judged.push_back(
        fmt::format("{} of {} tokens are padding between sequences", between, tokens));
  }
  return rows;
}

// Sequences of their own lengths, a case each.
void AddSequences(const AttentionCall& call, DenseCalls* dense) {
  std::optional<Array> masks = call.mask_array;
  int64_t in_masks = 0;
  if (masks) {
    if (masks->dtype != DType::kBool || masks->extents.size() != 1) {
      RefuseCall("mask",
                 "sequences of their own lengths have no common mask array: one list of bools, "
                 "sequence by sequence the (L, T) of each, is understood; causal and window are "
                 "those of each");
    }
    masks->strides_bytes = StridesOf("mask", *masks);
  }
  for (const auto* scale : {&call.k_scale, &call.v_scale}) {
    if (*scale && (*scale)->extents.size() > 1) {
      throw Error(ErrorCode::kIllegalCase,
                  "of packed or paged K and V one scale, or one for each head, is understood",
                  "k_scale, v_scale");
    }
  }
  std::vector<int64_t> lens;
  std::optional<PageLists> pages;
  int64_t count = call.q.extents[0];
  const PackedRows queries =
      PackedRowsOf("q", call.cu_seqlens_q, call.cu_seqlens_q_padded, call.q.extents[2], dense);
  const PackedRows keys =
      PackedRowsOf("k", call.cu_seqlens_k, call.cu_seqlens_k_padded, call.k.extents[2], dense);
  if (!queries.starts.empty()) count = queries.count();
  if (call.kv_lens) lens = Integers("kv_lens", *call.kv_lens, 1);
  if (call.block_table) pages.emplace(call);
  if (call.block_starts && !call.block_table) {
    throw Error(ErrorCode::kMissingData, "goes with block_table, the pages of all sequences",
                "array 'block_starts'");
  }
  if (call.block_table && !call.kv_lens) {
    throw Error(ErrorCode::kMissingData, "goes with kv_lens, the tokens of each sequence",
                "array 'block_table'");
  }
  const int64_t k_count = pages                  ? pages->sequences()
                          : !keys.starts.empty() ? keys.count()
                                                 : call.k.extents[0];
  if (k_count != count || (call.kv_lens && static_cast<int64_t>(lens.size()) != count)) {
    throw Error(ErrorCode::kIllegalCase,
                fmt::format("{} sequences of queries, {} of keys{}", count, k_count,
                            call.kv_lens ? fmt::format(", {} lengths", lens.size()) : ""),
                "cu_seqlens_q, cu_seqlens_k, block_table, kv_lens");
  }
  if (pages) {
    CheckOrderOfPages(call, *pages, lens);
    // Pages may be listed many times, so that small tables can ask for much memory.
    double tokens = 0;
    for (const int64_t len : lens) tokens += static_cast<double>(std::max<int64_t>(len, 0));
    double bytes = 0;
    for (const Array* array : {&call.k, &call.v}) {
      bytes += tokens * static_cast<double>(array->extents[1]) *
               static_cast<double>(array->extents[3]) *
               static_cast<double>(SizeInBytes(array->dtype));
    }
    CheckFitsMemory(bytes, "K and V as block_table lists them");
  }
  for (int64_t i = 0; i < count; ++i) {
    const std::string name = fmt::format("sequence {}", i);
    const auto at = static_cast<size_t>(i);
    AttentionCall one = call;
    const auto take = [&](const char* letter, Array* array) {
      *array = queries.starts.empty()
                   ? Slice(letter, *array, 0, i, 1)
                   : Slice(letter, *array, 2, queries.starts[at], queries.lens[at]);
    };
    take("q", &one.q);
    take("out", &one.out);
    if (one.lse) take("lse", &*one.lse);
    const int64_t room = call.block_table       ? lens[at]
                         : !keys.starts.empty() ? keys.lens[at]
                                                : call.k.extents[2];
    const int64_t tokens = call.kv_lens ? lens[at] : room;
    if (tokens < 0 || tokens > room) {
      RefuseCall("kv_lens",
                 fmt::format("{} tokens of {}, which has room for {}", tokens, name, room));
    }
    if (masks) one.mask_array = TakeMask(*masks, one.q.extents[2], tokens, &in_masks);
    if (one.q.extents[2] == 0) {
      dense->not_judged.push_back(fmt::format("{} has no queries", name));
      continue;
    }
    if (tokens == 0) {
      HideOnlyKey(&one, &dense->own);
      dense->calls.push_back(CaseOf(one, name));
      continue;
    }
    for (auto [letter, array] : {std::pair<const char*, Array*>{"k", &one.k}, {"v", &one.v}}) {
      if (pages) {
        *array = Gathered(letter, *array, pages->Of(at), tokens, &dense->own);
      } else if (!keys.starts.empty()) {
        *array = Slice(letter, *array, 2, keys.starts[at], tokens);
      } else {
        *array = Slice(letter, Slice(letter, *array, 0, i, 1), 2, 0, tokens);
      }
    }
    dense->calls.push_back(CaseOf(one, name));
  }
  if (masks && in_masks != masks->extents[0]) {
    RefuseCall("mask", fmt::format("{} elements, where the masks of all sequences have {}",
                                   masks->extents[0], in_masks));
  }
}

// Extents of B, H, S in the order of a layout of these axes.
std::vector<int64_t> InOrder(const std::vector<int64_t>& bhs, const std::string& layout) {
  std::vector<int64_t> ordered;
  for (const char axis : layout) ordered.push_back(bhs[std::string("bhs").find(axis)]);
  return ordered;
}

// An lse of another type or order than the call states is a mistake of the call, not of the kernel.
// lse: its axes in the order "bhs".
void CheckLse(const AttentionCall& call, const std::string& lse_layout) {
  if (!call.lse) return;
  const DType type = call.lse->dtype;
  const bool is_wide = call.out.dtype == DType::kFloat64;
  const bool is_low = type == DType::kFloat16 || type == DType::kBFloat16;
  if (type != DType::kFloat64 && (is_wide || (type != DType::kFloat32 && !is_low))) {
    RefuseCall("lse", fmt::format("has type {}, where a log-sum-exp beside an output in {} is {}",
                                  Name(type), Name(call.out.dtype),
                                  is_wide ? "float64" : "float32, float64, float16 or bfloat16"));
  }
  const std::vector<int64_t> wanted(call.q.extents.begin(), call.q.extents.begin() + 3);
  const std::vector<int64_t>& given = call.lse->extents;  // of B, H, S
  if (given == wanted) return;
  // The axes as the array has them, and the other names that they may have.
  const std::vector<int64_t> own = InOrder(given, lse_layout);
  std::vector<std::string> fitting;
  std::string other = lse_layout;
  std::sort(other.begin(), other.end());
  do {
    bool fits = true;
    for (size_t i = 0; i < other.size(); ++i) {
      fits = fits && own[i] == wanted[std::string("bhs").find(other[i])];
    }
    if (fits) fitting.push_back(fmt::format("lse_layout '{}' fits", other));
  } while (std::next_permutation(other.begin(), other.end()));
  RefuseCall("lse", fmt::format("extents {}, where lse_layout '{}' and q (batch {}, heads {}, "
                                "tokens {}) ask for {}; {}",
                                fmt::join(own, " x "), lse_layout, wanted[0], wanted[1], wanted[2],
                                fmt::join(InOrder(wanted, lse_layout), " x "),
                                fitting.empty() ? "no order of its axes fits"
                                                : fmt::format("{}", fmt::join(fitting, ", "))));
}

// An lse in f64 beside outputs of fewer bits as the f32 next to it, which a case has there: what
// is right in f64 is right so, since the bound holds the rounding of an lse in f32.
void NarrowLse(AttentionCall* call, std::deque<Tensor>* own) {
  if (!call->lse || call->lse->dtype != DType::kFloat64 || call->out.dtype == DType::kFloat64) {
    return;
  }
  const std::vector<double> numbers = Numbers("lse", *call->lse);
  Tensor& narrow = own->emplace_back(DType::kFloat32, Shape::Unnamed(call->lse->extents));
  EncodeFrom(numbers, DType::kFloat32, narrow.bytes.data());
  call->lse = Array{DType::kFloat32, call->lse->extents, narrow.bytes.data()};
  call->lse->strides_bytes = StridesOf("lse", *call->lse);
}

}  // namespace

DenseCalls DenseCallsOf(const AttentionCall& call) {
  CheckLayout(call.layout, "hsd", "layout");
  const bool has_batch = call.layout.find('b') != std::string::npos;
  const std::string lse_layout =
      !call.lse_layout.empty() ? call.lse_layout : std::string(has_batch ? "bhs" : "hs");
  CheckLayout(lse_layout, "hs", "lse_layout");
  AttentionCall ordered = call;
  ordered.q = Ordered("q", call.q, call.layout, "bhsd");
  ordered.out = Ordered("out", call.out, call.layout, "bhsd");
  if (call.lse) ordered.lse = Ordered("lse", *call.lse, lse_layout, "bhs");
  std::string kv_layout = call.layout;
  // Pages stand where rows of a batch would.
  if (call.block_table && !has_batch) kv_layout = "b" + kv_layout;
  ordered.k = Ordered("k", call.k, kv_layout, "bhsd");
  ordered.v = Ordered("v", call.v, kv_layout, "bhsd");
  for (const auto& [name, packed] : {std::pair{"cu_seqlens_q", &call.cu_seqlens_q},
                                     {"cu_seqlens_k", &call.cu_seqlens_k},
                                     {"cu_seqlens_q_padded", &call.cu_seqlens_q_padded},
                                     {"cu_seqlens_k_padded", &call.cu_seqlens_k_padded}}) {
    if (*packed && has_batch) {
      throw Error(
          ErrorCode::kIllegalCase,
          fmt::format("packed sequences have no batch: layout 'shd', not '{}'", call.layout),
          fmt::format("array '{}'", name));
    }
  }
  CheckLse(ordered, lse_layout);
  DenseCalls dense;
  NarrowLse(&ordered, &dense.own);
  if (call.cu_seqlens_q || call.cu_seqlens_k || call.cu_seqlens_q_padded ||
      call.cu_seqlens_k_padded || call.block_table || call.block_starts || call.kv_lens) {
    AddSequences(ordered, &dense);
  } else {
    dense.calls.push_back(CaseOf(ordered, ""));
  }
  return dense;
}

}  // namespace kvcheck
