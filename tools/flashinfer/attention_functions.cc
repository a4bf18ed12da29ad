#include "tools/flashinfer/attention_functions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "reference/numerics/convert.h"
#include "reference/spec/error.h"
#include "tools/corridor/array_tensors.h"

namespace kvcheck {
namespace {

enum class Function { kSingleDecode, kSinglePrefill, kDecode, kPagedPrefill, kRaggedPrefill };

struct FunctionRow {
  Function function;
  std::string_view name;  // of wrappers the class
  bool is_wrapper;
};
constexpr FunctionRow kFunctions[] = {
    {Function::kSingleDecode, "single_decode_with_kv_cache", false},
    {Function::kSinglePrefill, "single_prefill_with_kv_cache", false},
    {Function::kDecode, "BatchDecodeWithPagedKVCacheWrapper", true},
    // The same, with buffers that a CUDA graph keeps.
    {Function::kDecode, "CUDAGraphBatchDecodeWithPagedKVCacheWrapper", true},
    {Function::kPagedPrefill, "BatchPrefillWithPagedKVCacheWrapper", true},
    {Function::kRaggedPrefill, "BatchPrefillWithRaggedKVCacheWrapper", true},
};

const FunctionRow* RowOf(std::string_view function) {
  const size_t dot = function.find('.');
  for (const FunctionRow& row : kFunctions) {
    if (row.name == function.substr(0, dot) && row.is_wrapper == (dot != std::string_view::npos)) {
      return &row;
    }
  }
  return nullptr;
}

// Arguments that choose no other result: memory, launches, and what tensors say themselves.
const std::vector<std::string> kHarmless = {
    "self", "out", "lse", "enable_pdl", "non_blocking", "float_workspace_buffer", "use_cuda_graph",
    "rope_scale", "rope_theta", "q_data_type", "kv_data_type", "o_data_type", "data_type",
    "o_dtype", "fixed_split_size", "disable_split_kv", "seq_lens", "seq_lens_q", "block_tables",
    "q_len_per_req", "max_token_per_sequence", "max_sequence_kv", "uniform_q_len", "num_qo_heads",
    "paged_kv_indptr_buffer", "paged_kv_indices_buffer", "paged_kv_last_page_len_buffer",
    "qo_indptr_buf", "paged_kv_indptr_buf", "paged_kv_indices_buf", "paged_kv_last_page_len_buf",
    "kv_indptr_buf", "custom_mask_buf", "mask_indptr_buf", "token_pos_in_items_len",
    // Read below.
    "q", "k", "v", "paged_kv_cache", "kv_layout", "pos_encoding_mode", "use_tensor_cores",
    "q_scale", "k_scale", "v_scale", "window_left", "logits_soft_cap", "sm_scale", "return_lse",
    "lse_base", "lse_layout", "causal", "is_causal", "custom_mask", "packed_custom_mask",
    "use_fp16_qk_reduction", "backend", "sinks", "indptr", "indices", "last_page_len", "qo_indptr",
    "kv_indptr", "paged_kv_indptr", "paged_kv_indices", "paged_kv_last_page_len", "num_kv_heads",
    "head_dim", "head_dim_qk", "head_dim_vo", "page_size"};

// BatchDecodeWithPagedKVCacheWrapper.plan takes these by position too, behind "*".
const std::vector<std::string> kDecodePlanPositional = {
    "pos_encoding_mode", "window_left",      "logits_soft_cap",  "q_data_type",
    "kv_data_type",      "o_data_type",      "data_type",        "sm_scale",
    "rope_scale",        "rope_theta",       "non_blocking",     "block_tables",
    "seq_lens",          "fixed_split_size", "disable_split_kv", "q_len_per_req"};

[[noreturn]] void Decline(const std::string& why) { throw Error(ErrorCode::kUnsupported, why); }

[[noreturn]] void Contradicts(const std::string& name, const std::string& why) {
  throw Error(ErrorCode::kIllegalCase, why, fmt::format("argument '{}'", name));
}

void NeedAxes(const std::string& name, const Array& array, size_t axes) {
  if (array.extents.size() == axes) return;
  Contradicts(name, fmt::format("has {} axes ({}), where {} are meant", array.extents.size(),
                                fmt::join(array.extents, " x "), axes));
}

// Axes in another order.
Array Permuted(const std::string& name, const Array& array, const std::vector<size_t>& order) {
  const std::vector<int64_t> strides = StridesOf(name, array);
  Array permuted = array;
  permuted.strides_bytes.resize(order.size());
  for (size_t axis = 0; axis < order.size(); ++axis) {
    permuted.extents[axis] = array.extents[order[axis]];
    permuted.strides_bytes[axis] = strides[order[axis]];
  }
  return permuted;
}

// (H, D) of one token as (1, H, D), (H) as (1, H).
Array OfOneToken(const std::string& name, Array array) {
  array.strides_bytes = StridesOf(name, array);
  array.extents.insert(array.extents.begin(), 1);
  array.strides_bytes.insert(array.strides_bytes.begin(), 0);
  return array;
}

// Reads a call and the calls that made its wrapper into an UnderstoodCall.
class Reader {
 public:
  Reader(const DumpedCall& call, const WrapperCalls& wrapper, bool has_plan)
      : call_(call), has_plan_(has_plan) {
    const FunctionRow* row = RowOf(call.function);
    if (row == nullptr) Decline("is no function of attention that is understood");
    function_ = row->function;
    run_ = Add(call);
    plan_ = run_;
    if (row->is_wrapper) {
      if (wrapper.plan == nullptr) {
        Decline(
            "the dump has no finished plan() of this wrapper before this call: dump "
            "'*.plan' too (FLASHINFER_DUMP_INCLUDE)");
      }
      plan_ = Add(*wrapper.plan);
      if (wrapper.init != nullptr) init_ = Add(*wrapper.init);
    }
  }

  UnderstoodCall Read() {
    CheckUnderstood();
    AttentionCall& asked = understood_.call;
    asked.layout = "shd";
    ReadOutputs();
    q_ = Needed(run_, "q");
    if (function_ == Function::kSingleDecode) {
      NeedAxes("q", q_, 2);
      q_ = OfOneToken("q", q_);
    }
    NeedAxes("q", q_, 3);
    asked.q = q_;
    switch (function_) {
      case Function::kSingleDecode:
      case Function::kSinglePrefill:
        asked.k = Dense("k");
        asked.v = Dense("v");
        break;
      case Function::kDecode:
        ReadPages("indptr", "indices", "last_page_len");
        StartQueriesOfDecode();
        break;
      case Function::kPagedPrefill:
        ReadPages("paged_kv_indptr", "paged_kv_indices", "paged_kv_last_page_len");
        asked.cu_seqlens_q = Needed(plan_, "qo_indptr");
        break;
      case Function::kRaggedPrefill:
        ReadRagged();
        break;
    }
    ReadMask();
    ReadScores();
    understood_.plan = KernelPlan();
    return std::move(understood_);
  }

 private:
  Arguments* Add(const DumpedCall& call) {
    const bool is_decode_plan = function_ == Function::kDecode && call.function.ends_with(".plan");
    understood_.arguments.push_back(std::make_unique<Arguments>(
        call, is_decode_plan ? kDecodePlanPositional : std::vector<std::string>()));
    for (const std::string& key : call.strided) {
      understood_.remarks.push_back(
          fmt::format("{} of {} was not contiguous in the call, and its copy in the dump is", key,
                      call.folder));
    }
    if (call.is_replay) {
      understood_.remarks.push_back(
          "inputs and outputs are as they were when the replay of the CUDA graph had ended");
    }
    return understood_.arguments.back().get();
  }

  static Array Needed(Arguments* from, const std::string& name) {
    if (const std::optional<Array> tensor = from->Tensor(name)) return *tensor;
    throw Error(ErrorCode::kMissingData, "the call has none", fmt::format("argument '{}'", name));
  }

  void CheckUnderstood() const {
    for (const auto& arguments : understood_.arguments) arguments->RefuseUnknown(kHarmless);
    const std::string position = plan_->Text("pos_encoding_mode");
    if (!position.empty() && position != "NONE") {
      Decline(fmt::format("pos_encoding_mode={} is not understood: the kernel would rotate or bias",
                          position));
    }
    if (plan_->Flag("use_fp16_qk_reduction") && !has_plan_) {
      Decline("use_fp16_qk_reduction: no plan is known; state one with --plan");
    }
  }

  void ReadOutputs() {
    understood_.outputs = std::make_unique<MappedTensors>(call_.path + "/outputs.safetensors");
    const bool has_lse = run_->Flag("return_lse");
    AttentionCall& asked = understood_.call;
    asked.out = understood_.outputs->Get(has_lse ? "result_0" : "result");
    const bool is_one_token = function_ == Function::kSingleDecode;
    if (is_one_token) asked.out = OfOneToken("out", asked.out);
    if (!has_lse) return;
    Array lse = understood_.outputs->Get("result_1");
    const std::string base = run_->Text("lse_base");
    if (!base.empty() && base != "log2") {
      // The kernel's own has base 2; the rounding of the product with log 2 is in no plan.
      understood_.remarks.push_back(fmt::format(
          "lse in base '{}' is computed from the kernel's own and is not judged", base));
      return;
    }
    asked.lse_kind = LseKind::kBase2;
    asked.lse_layout = run_->Text("lse_layout") == "HN" ? "hs" : "sh";
    asked.lse = is_one_token ? OfOneToken("lse", lse) : lse;
  }

  // (T, H, D) as NHD has it, or (H, T, D).
  Array Dense(const std::string& name) {
    const Array array = Needed(run_, name);
    NeedAxes(name, array, 3);
    return IsHnd(run_->Text("kv_layout")) ? Permuted(name, array, {1, 0, 2}) : array;
  }

  static bool IsHnd(const std::string& layout) {
    if (layout != "NHD" && layout != "HND" && !layout.empty()) {
      Decline(fmt::format("kv_layout '{}' is not understood", layout));
    }
    return layout == "HND";
  }

  // Pages as (pages, tokens, H, D).
  Array Pages(Array pages) {
    const std::string name = "paged_kv_cache";
    NeedAxes(name, pages, 4);
    const double page_size = plan_->Number("page_size").value_or(-1);
    const double heads = plan_->Number("num_kv_heads").value_or(-1);
    const auto fits = [&](size_t token_axis) {
      return static_cast<double>(pages.extents[token_axis]) == page_size &&
             static_cast<double>(pages.extents[3 - token_axis]) == heads;
    };
    bool is_hnd = false;
    if (init_ != nullptr) {
      is_hnd = IsHnd(init_->Text("kv_layout"));
    } else if (fits(1) && fits(2)) {
      Decline(
          "the dump has no __init__() of this wrapper, and pages have as many tokens as heads, "
          "so that kv_layout is not known: dump '*.__init__' too");
    } else {
      is_hnd = fits(2);
    }
    if (!fits(is_hnd ? 2 : 1)) {
      Contradicts(name, fmt::format("is {}, where plan() says pages of {} tokens and {} heads ({})",
                                    fmt::join(pages.extents, " x "), page_size, heads,
                                    is_hnd ? "HND" : "NHD"));
    }
    return is_hnd ? Permuted(name, pages, {0, 2, 1, 3}) : pages;
  }

  void ReadPages(const std::string& starts, const std::string& list, const std::string& last) {
    const std::string name = "paged_kv_cache";
    AttentionCall& asked = understood_.call;
    const DumpedValue& cache = run_->Value(name);
    if (cache.kind == DumpedValue::Kind::kItems) {
      if (cache.items.size() != 2) Contradicts(name, "is a tuple of other than K and V");
      asked.k = Pages(run_->TensorOf(name, cache.items[0]));
      asked.v = Pages(run_->TensorOf(name, cache.items[1]));
    } else {
      Array both = run_->TensorOf(name, cache);
      NeedAxes(name, both, 5);
      if (both.extents[1] != 2) Contradicts(name, "has no axis of K and V");
      both.strides_bytes = StridesOf(name, both);
      const int64_t step = both.strides_bytes[1];
      both.extents.erase(both.extents.begin() + 1);
      both.strides_bytes.erase(both.strides_bytes.begin() + 1);
      asked.k = Pages(both);
      if (both.data != nullptr) both.data = static_cast<const std::byte*>(both.data) + step;
      asked.v = Pages(both);
    }
    asked.block_table = Needed(plan_, list);
    asked.block_starts = Needed(plan_, starts);
    const std::vector<int64_t> first = Integers(starts, *asked.block_starts);
    const std::vector<int64_t> in_last = Integers(last, Needed(plan_, last));
    if (first.size() != in_last.size() + 1) {
      Contradicts(last, fmt::format("has {} sequences, where {} has {}", in_last.size(), starts,
                                    static_cast<int64_t>(first.size()) - 1));
    }
    const int64_t page_size = asked.k.extents[1];
    // Integers() are below 2^31, so that no length below overflows.
    if (page_size > 0x7fffffff) Contradicts(name, "has pages of more than 2^31 tokens");
    std::vector<int64_t>& lens = understood_.integers.emplace_back();
    for (size_t i = 0; i < in_last.size(); ++i) {
      const int64_t pages = first[i + 1] - first[i];
      const int64_t least = pages > 0 ? 1 : 0;
      if (pages < 0 || in_last[i] < least || in_last[i] > (pages > 0 ? page_size : 0)) {
        Contradicts(last, fmt::format("is {} of sequence {}, which has {} pages of {} tokens",
                                      in_last[i], i, pages, page_size));
      }
      lens.push_back(pages > 0 ? (pages - 1) * page_size + in_last[i] : 0);
    }
    asked.kv_lens = IntegersArray(lens);
  }

  void ReadRagged() {
    if (init_ == nullptr) {
      understood_.remarks.push_back(
          "the dump has no __init__() of this wrapper: kv_layout is taken for NHD");
    } else if (IsHnd(init_->Text("kv_layout"))) {
      Decline("ragged K and V in kv_layout HND are not understood");
    }
    AttentionCall& asked = understood_.call;
    asked.k = Needed(run_, "k");
    asked.v = Needed(run_, "v");
    asked.cu_seqlens_q = Needed(plan_, "qo_indptr");
    asked.cu_seqlens_k = Needed(plan_, "kv_indptr");
  }

  // Each sequence has the same number of queries.
  void StartQueriesOfDecode() {
    const int64_t sequences = understood_.call.kv_lens->extents[0];
    const int64_t queries = q_.extents[0];
    if (sequences == 0 || queries % sequences != 0) {
      Contradicts("q", fmt::format("has {} queries, plan() has {} sequences", queries, sequences));
    }
    std::vector<int64_t>& starts = understood_.integers.emplace_back();
    for (int64_t i = 0; i <= sequences; ++i) starts.push_back(i * (queries / sequences));
    understood_.call.cu_seqlens_q = IntegersArray(starts);
  }

  bool HasQueriesOfOneToken() const {
    return function_ == Function::kSingleDecode ||
           (function_ == Function::kDecode &&
            q_.extents[0] == understood_.call.kv_lens->extents[0]);
  }

  void ReadMask() {
    AttentionCall& asked = understood_.call;
    std::string mask;
    const bool is_decode = function_ == Function::kSingleDecode || function_ == Function::kDecode;
    const bool is_causal = is_decode ? !HasQueriesOfOneToken() : plan_->Flag("causal");
    if (!is_decode && ReadCustomMask()) {
      // It stands in place of the causal one.
    } else if (is_causal) {
      mask = "causal_bottom_right";
    }
    std::optional<double> window = run_->Number("window_left");
    if (!window) window = plan_->Number("window_left");
    if (window && *window >= 0) {
      if (*window > 0x1p52 || *window != std::floor(*window)) {
        Contradicts("window_left", fmt::format("is {}", *window));
      }
      mask +=
          fmt::format("{}window:{}", mask.empty() ? "" : "+", static_cast<int64_t>(*window) + 1);
    }
    if (!mask.empty()) asked.mask = mask;
  }

  bool ReadCustomMask() {
    AttentionCall& asked = understood_.call;
    if (const std::optional<Array> packed = plan_->Tensor("packed_custom_mask")) {
      asked.mask_array = Unpacked(*packed);
      return true;
    }
    asked.mask_array = plan_->Tensor("custom_mask");
    if (asked.mask_array && function_ == Function::kSinglePrefill) {
      NeedAxes("custom_mask", *asked.mask_array, 2);
    }
    return asked.mask_array.has_value();
  }

  // Eight elements a byte, the lowest bit first; each sequence begins at a byte.
  Array Unpacked(const Array& packed) {
    const std::string name = "packed_custom_mask";
    NeedAxes(name, packed, 1);
    if (packed.dtype != DType::kUInt8) Contradicts(name, "is no list of bytes");
    const AttentionCall& asked = understood_.call;
    std::vector<std::pair<int64_t, int64_t>> sizes;  // queries and keys of each sequence
    if (function_ == Function::kSinglePrefill) {
      sizes.emplace_back(asked.q.extents[0], asked.k.extents[0]);
    } else {
      const auto lengths = [](const std::vector<int64_t>& starts) {
        std::vector<int64_t> lens;
        for (size_t i = 0; i + 1 < starts.size(); ++i) lens.push_back(starts[i + 1] - starts[i]);
        return lens;
      };
      const auto queries = lengths(Integers("qo_indptr", *asked.cu_seqlens_q));
      const auto keys = asked.kv_lens ? Integers("kv_lens", *asked.kv_lens)
                                      : lengths(Integers("kv_indptr", *asked.cu_seqlens_k));
      if (queries.size() != keys.size()) {
        Contradicts("qo_indptr", fmt::format("has {} sequences, where keys have {}", queries.size(),
                                             keys.size()));
      }
      for (size_t i = 0; i < keys.size(); ++i) sizes.emplace_back(queries[i], keys[i]);
    }
    const auto* codes = static_cast<const unsigned char*>(packed.data);
    std::vector<unsigned char>& bools = understood_.bytes.emplace_back();
    int64_t at = 0;
    for (const auto& [queries, keys] : sizes) {
      const int64_t left = packed.extents[0] - at;
      if (queries < 0 || keys < 0 || (keys > 0 && queries > left * 8 / keys)) {
        Contradicts(name,
                    fmt::format("has {} bytes, which do not reach to the {} x {} of a sequence",
                                packed.extents[0], queries, keys));
      }
      for (int64_t i = 0; i < queries * keys; ++i) {
        bools.push_back((codes[at + i / 8] >> (i % 8)) & 1);
      }
      at += (queries * keys + 7) / 8;
    }
    Array mask{DType::kBool, {static_cast<int64_t>(bools.size())}, bools.data()};
    if (function_ == Function::kSinglePrefill) mask.extents = {sizes[0].first, sizes[0].second};
    return mask;
  }

  // What multiplies and bends scores and values.
  void ReadScores() {
    AttentionCall& asked = understood_.call;
    // In the order in which FlashInfer multiplies: the same doubles.
    double scale =
        plan_->Number("sm_scale").value_or(1 / std::sqrt(static_cast<double>(q_.extents[2])));
    for (const char* name : {"q_scale", "k_scale"}) {
      if (const auto factor = run_->Number(name)) scale *= *factor;
    }
    asked.scale = scale;
    if (const auto cap = plan_->Number("logits_soft_cap"); cap && *cap > 0) asked.softcap = cap;
    if (const auto sinks = run_->Tensor("sinks")) asked.sinks = *sinks;
    const std::optional<double> v_scale = run_->Number("v_scale");
    if (!v_scale || *v_scale == 1) return;
    if (asked.v.dtype != DType::kFloat8E4M3FN && asked.v.dtype != DType::kFloat8E5M2) {
      Decline(fmt::format("v_scale with V of {} is not understood", Name(asked.v.dtype)));
    }
    // The output is rounded, multiplied and rounded again: a first rounding below the normal range
    // grows with a factor above 1.
    if (std::fabs(*v_scale) > 1 && asked.out.dtype == DType::kFloat16) {
      Decline(
          fmt::format("v_scale={} multiplies a rounded f16 output: no plan is known", *v_scale));
    }
    std::vector<float>& number = understood_.floats.emplace_back();
    number.push_back(static_cast<float>(*v_scale));
    asked.v_scale = Array{DType::kFloat32, {}, number.data()};
  }

  std::string KernelPlan() {
    const AttentionCall& asked = understood_.call;
    Arguments* const makes = init_ != nullptr ? init_ : run_;
    const std::string backend = makes->Text("backend");
    const bool is_decode = function_ == Function::kSingleDecode || function_ == Function::kDecode;
    const bool is_16_bit = asked.q.dtype == DType::kFloat16 || asked.q.dtype == DType::kBFloat16;
    const bool is_made = init_ != nullptr || plan_ == run_;
    if (!is_made) {
      understood_.remarks.push_back(
          "the dump has no __init__() of this wrapper: backend=auto assumed");
    }
    // trtllm-gen, cudnn, cute-dsl and others: nothing is stated of them.
    const bool is_own =
        backend.empty() || backend == "auto" || backend == "fa2" || backend == "fa3";
    if (!is_16_bit || !is_own || (is_decode && !is_made)) return "base=stranger";
    const bool tensor_cores = !is_decode || makes->Flag("use_tensor_cores");
    std::string plan = tensor_cores
                           ? fmt::format("base=flashinfer_prefill p={}", ShortName(asked.q.dtype))
                           : "base=flashinfer_decode";
    plan += fmt::format(" partial={}", ShortName(asked.out.dtype));
    // The rounding of the output before v_scale is at most the one of every value before it.
    if (asked.v_scale) plan += fmt::format(" dequantize=rounded:{}", ShortName(asked.out.dtype));
    return plan;
  }

  static std::vector<int64_t> Integers(const std::string& name, const Array& array) {
    NeedAxes(name, array, 1);
    if (array.dtype != DType::kInt32 && array.dtype != DType::kInt64) {
      Contradicts(name, fmt::format("has type {}, where i32 or i64 is meant", Name(array.dtype)));
    }
    const kvcheck::Tensor tensor = ToTensor(name, array);
    std::vector<double> numbers(static_cast<size_t>(tensor.ElementCount()));
    DecodeTo(tensor, 0, numbers);
    std::vector<int64_t> integers;
    for (const double number : numbers) {
      if (!(std::fabs(number) <= 0x1p31)) Contradicts(name, fmt::format("holds {}", number));
      integers.push_back(static_cast<int64_t>(number));
    }
    return integers;
  }

  static Array IntegersArray(const std::vector<int64_t>& integers) {
    return {DType::kInt64, {static_cast<int64_t>(integers.size())}, integers.data()};
  }

  const DumpedCall& call_;
  bool has_plan_;
  Function function_ = Function::kSingleDecode;
  UnderstoodCall understood_;
  Arguments* run_ = nullptr;
  Arguments* plan_ = nullptr;  // of functions the call itself
  Arguments* init_ = nullptr;
  Array q_;
};

}  // namespace

FunctionKind KindOfFunction(const std::string& function) {
  const FunctionRow* row = RowOf(function);
  if (row == nullptr) return FunctionKind::kOther;
  if (!row->is_wrapper || function.ends_with(".run")) return FunctionKind::kAttention;
  const bool is_state = function.ends_with(".plan") || function.ends_with(".__init__");
  return is_state ? FunctionKind::kState : FunctionKind::kOther;
}

void UnderstoodCall::ThrowIfDamaged() const {
  for (const auto& arguments_of_one : arguments) arguments_of_one->ThrowIfDamaged();
  outputs->ThrowIfDamaged();
}

UnderstoodCall Understand(const DumpedCall& call, const WrapperCalls& wrapper, bool has_plan) {
  return Reader(call, wrapper, has_plan).Read();
}

}  // namespace kvcheck
