// kvcheck as a library, for programs that hold tensors and caches in memory of their own:
//   #include <kvcheck/kvcheck.h>, find_package(kvcheck), target kvcheck::kvcheck.
// Every judgement is the corridor of the command line: the same reference, bounds and verdicts.
// Nothing here prints, reads options, handles signals or ends the process.
//
// Errors of all functions: kvcheck::Error, by its code().
//   kParse        a text (case, mask, plan, profile, format, rule) that does not parse
//   kIllegalCase  shapes that contradict each other; a question that is not defined
//   kMissingData  an array that the question needs is absent, or of another type or shape
//   kUnsupported  a question that this build cannot answer, or that does not fit the memory
// What the judged kernel, codec or cache did wrong is no error: it is in the Verdict. Cancelled is
// thrown where Settings::cancelled said so.
// The texts of masks, plans, profiles, formats and rules: reference/README.md, section 3.

#ifndef TOOLS_CORRIDOR_KVCHECK_H_
#define TOOLS_CORRIDOR_KVCHECK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reference/attention/row_sums.h"
#include "reference/judge/verdict.h"
#include "reference/spec/cache_implementation.h"
#include "reference/spec/case.h"
#include "reference/spec/dtype.h"
#include "reference/spec/error.h"
#include "reference/spec/prefix_implementation.h"
#include "reference/spec/tensor.h"
#include "tools/corridor/cancel.h"

namespace kvcheck {

// An array in the caller's memory, which is read during the call alone.
struct Array {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> extents;
  const void* data = nullptr;
  std::vector<int64_t> strides_bytes{};  // one per axis; empty: row-major without gaps
};
// By the names that the case gives its tensors: "q", "k", "v", "out", "x", "codes", ...
using Arrays = std::map<std::string, Array>;

// Under what an answer is judged.
struct Settings {
  std::string plan = "base=stranger";  // how it was computed; of attention alone
  std::string profile{};               // which conventions it follows
  bool strict = false;                 // a plan that the verdict chooses is refused
  Rule rule = Rule::kStatistics;       // by what an output fails
  // Faults that a PASS of attention must be able to show, by commas, or "standard", or "none"; "":
  // "standard" where strict, else "none".
  std::string must_see{};
  int threads = 1;  // does not change the verdict
  // Rows of each output that are judged (reference/judge/sampled_source.h says which); 0: all.
  int64_t sample_rows = 0;
  uint64_t sample_seed = 1;
  // A file that is written where the answer does not pass, so that the verdict's command judges it
  // again: a golden file; of two arrays an HDF5 file of the one, and beside it NAME.got.h5 of the
  // other; its folder is made. "": none. Of sequences judged apart, the first that does not pass.
  std::string save{};
  std::function<bool()>
      cancelled{};  // asked again and again, by every thread; before each operation of a trace
};

// A call of an attention kernel, and what it answered.
// Shapes: q (B, Hq, L, Dk), k (B, Hkv, T, Dk), v (B, Hkv, T, Dv), out (B, Hq, L, Dv), their axes in
// the order of `layout`; lse (B, Hq, L) in that of `lse_layout`, in f32, f16 or bf16, of outputs in
// f64 in f64, or in f64 beside other outputs, where the f32 next to it is judged; sinks and
// alibi_slopes (Hq).
// A mask_array that the mask has no term for is bool or additive of shape (T), (L, T), (B, L, T) or
// (B, Hq, L, T), in which an extent may be 1. K and V of plain types, or codes of 8 bits with
// k_scale and v_scale; other formats go through JudgeCase.
// Sequences of their own lengths are a case each, `causal` and `window` those of each: with
// cu_seqlens_q and cu_seqlens_k (N + 1; starts) the tokens of all follow each other, layout "shd";
// with padding between them they are sums of the lengths, and cu_seqlens_q_padded and
// cu_seqlens_k_padded (N + 1) say where each starts, as cuDNN and TransformerEngine have it;
// with block_table (N, pages) K and V are (pages, Hkv, tokens of a page, D), the last three as the
// layout has them, and with kv_lens (N) of each only the first tokens are there. With block_starts
// (N + 1) block_table is one list, the pages of all sequences one behind the other. Their
// mask_array is one list of bools, sequence by sequence the row-major (L, T) of each. Rows of a
// sequence without keys are fully masked ones.
// Definition: AttentionCase in reference/spec/case.h.
struct AttentionCall {
  Array q, k, v;
  Array out{};
  std::string layout = "bhsd";  // b batch row, h head, s token, d channel; b may be left out
  std::string lse_layout{};     // "": "bhs", or "hs" where the layout has no b
  // One factor of the codes (1), one for each head (Hkv, up to 16), one for each vector (B, Hkv,
  // T).
  std::optional<Array> k_scale{};
  std::optional<Array> v_scale{};
  std::optional<Array> cu_seqlens_q{};
  std::optional<Array> cu_seqlens_k{};
  std::optional<Array> cu_seqlens_q_padded{};
  std::optional<Array> cu_seqlens_k_padded{};
  std::optional<Array> block_table{};
  std::optional<Array> block_starts{};
  std::optional<Array> kv_lens{};
  std::optional<Array> lse{};
  LseKind lse_kind = LseKind::kNatural;  // where lse is given
  std::string mask = "none";             // "causal_bottom_right+window:4096", "bool:B1LT", ...
  std::optional<Array> mask_array{};     // of the terms `bool` and `additive`
  std::optional<double> scale{};         // left out: 1 / sqrt(Dk)
  std::optional<double> softcap{};
  std::optional<Array> sinks{};
  std::optional<Array> alibi_slopes{};
  // Where q, k and v lie on a device too: the sums of its heads (reference/attention/row_sums.h).
  // Not asked of sequences of their own lengths.
  DeviceSums device_sums{};
};

Verdict JudgeAttention(const AttentionCall& call, const Settings& settings = {});

// What an output should be, and how far a right one may be off. Row-major; NaN where no value is
// defined or promised.
struct ExpectedValues {
  std::vector<int64_t> extents;
  std::vector<double> value;      // nearest double
  std::vector<double> value_low;  // what it leaves out
  std::vector<double> bound;      // of |got - value| under the plan
};
// "out", and "lse" where call.lse is given (its type alone counts, as that of call.out). Axes (B,
// Hq, L, Dv), (B, Hq, L), whatever the layout; of one case, not of sequences.
std::map<std::string, ExpectedValues> ReferenceAttention(const AttentionCall& call,
                                                         const Settings& settings = {});

// Rows of x (rows, d), of f64, f32, f16 or bf16, as a format stores them: its planes by name
// ("codes", "scales"), each (rows, elements). Errors also: kIllegalCase where d is no multiple of
// the format's block.
TensorMap EncodeRows(const Array& x, const std::string& format, const Settings& settings = {});
// The values (rows, d) that stored rows mean, in the type of rows. d: 0: as many as the planes
// hold.
Tensor DecodeRows(const Arrays& planes, const std::string& format, DType rows, int64_t d,
                  const Settings& settings = {});

// The tensors that a case with data=REGIME:SEED stands for, the same bits on every machine.
TensorMap DrawInputs(const std::string& case_text, const Settings& settings = {});
// What an implementation of this program answers to a case: "optimized", "simulated:PLAN",
// "fault:ID", ...; "": the default of its kind. Errors also: kUsage for one that is not there;
// kUnsupported where it declines.
TensorMap AnswerCase(const std::string& case_text, const Arrays& inputs,
                     const std::string& implementation, const Settings& settings = {});

// Any case of attention, a codec or tensors, as its text ("codec op=encode format=affine:4:g64:f16
// x=f16 rows=8 d=128 data=file"). inputs: its tensors; none where the case generates its
// data. outputs: what the implementation answered.
Verdict JudgeCase(const std::string& case_text, const Arrays& inputs, const Arrays& outputs,
                  const Settings& settings = {});

// Two arrays under a rule ("exact", "ulp:2", "abs:2^-20,rel:0.001"); another type or shape of got
// fails. Errors also: kIllegalCase for arrays without elements.
Verdict JudgeArrays(const Array& want, const Array& got, const std::string& rule,
                    const Settings& settings = {});

// Is `stored` what a format keeps of the rows x (rows, d)? As `kvcheck compare --tol codec:FORMAT`
// judges it: what the planes mean lies within the format's own error of x, under every encoder that
// settings.profile leaves open ("encode=mlx_gpu"). stored: the planes by name, each (rows,
// elements), of a format that is not plain; or the one array "y" (rows, d), values in the format's
// type of rows. Other planes, types or shapes of them fail.
Verdict JudgeStoredRows(const Array& x, const Arrays& stored, const std::string& format,
                        const Settings& settings = {});

// Runs a trace of operations ("cache layout=... ; new A; append A 3; ...") on the caches of this
// process, beside the model of the contract. Of settings, `cancelled` alone: plan and profile are
// what the caches state, and one thread runs them.
Verdict JudgeCache(const std::string& case_text, CacheFactory* caches,
                   const Settings& settings = {});

// Runs a history of a server's requests ("prefix block=4 tokens=64 ...; open ...") on the prefix
// cache of this process, beside what the judge knows of it. Of settings, `cancelled` alone.
// Errors also: kUnreadableFile where a history with a disk finds no place for its folder.
Verdict JudgePrefix(const std::string& case_text, PrefixImplementation* cache,
                    const Settings& settings = {});

// As kvcheck prints it: one line where it passed, otherwise what explains it; with verbose
// everything that is known.
std::string TextOf(const Verdict& verdict, bool verbose = false);
// As --json has it: a document with this one result (tools/report/README.md).
std::string JsonOf(const Verdict& verdict);
// The exit code that the command line would end with: 0 passed, 1 failed, 3 nothing was proved.
int ExitCodeOf(const Verdict& verdict);

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_KVCHECK_H_
