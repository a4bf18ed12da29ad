// kvcheck._core: the library (tools/corridor/kvcheck.h) for Python. Nothing is decided here:
// arguments become the structs of the library, its results Python objects. The GIL is released
// while a question is judged; Ctrl-C ends it within a second.

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reference/data/attention_regime.h"
#include "reference/data/row_regime.h"
#include "reference/spec/known_plans.h"
#include "reference/spec/kv_format.h"
#include "tools/corridor/kvcheck.h"
#include "tools/python/buffers.h"
#include "tools/python/released.h"
#include "tools/python/verdict_state.h"
#include "tools/report/case_result.h"
#include "tools/report/github_report.h"
#include "tools/report/html_report.h"
#include "tools/report/output_text.h"
#include "tools/report/summary.h"
#include "tools/report/text_report.h"
#include "tools/report/tool_version.h"

namespace kvcheck {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

// Judges without the GIL. Errors: those of `work`; the exception of Ctrl-C.
template <typename Work>
auto Judged(const Settings& settings, Work work) {
  return Released([settings, work = std::move(work)](std::function<bool()> cancelled) {
    Settings with_cancel = settings;
    with_cancel.cancelled = std::move(cancelled);
    return work(with_cancel);
  });
}

Rule RuleNamed(const std::string& name) {
  const std::optional<Rule> rule = ParseRule(name);
  if (rule && *rule != Rule::kNoise) return *rule;
  throw Error(ErrorCode::kUsage, fmt::format("rule='{}': 'statistics' or 'bound'", name), "rule");
}

Settings MakeSettings(const std::string& plan, const std::string& profile, bool strict,
                      const std::string& rule, const std::string& must_see, int threads,
                      int64_t rows, uint64_t seed, const std::string& save) {
  if (threads < 1 || threads > 1024) {
    throw Error(ErrorCode::kUsage, fmt::format("{} threads: 1 to 1024", threads), "threads");
  }
  if (rows < 0) throw Error(ErrorCode::kUsage, "a negative number of rows", "rows");
  Settings settings;
  settings.plan = plan;
  settings.profile = profile;
  settings.strict = strict;
  settings.rule = RuleNamed(rule);
  settings.must_see = must_see;
  settings.threads = threads;
  settings.sample_rows = rows;
  settings.sample_seed = seed;
  settings.save = save;
  return settings;
}

// What is said of a call beside its arrays.
struct CallWords {
  std::string mask = "none";
  std::optional<double> scale;
  std::optional<double> softcap;
  std::string layout = "bhsd";
  std::string lse_layout;
  bool lse_base2 = false;
};

AttentionCall CallOf(const Arrays& arrays, const CallWords& words) {
  const auto find = [&](const char* name) {
    const auto found = arrays.find(name);
    return found == arrays.end() ? std::nullopt : std::optional<Array>(found->second);
  };
  const auto get = [&](const char* name) {
    std::optional<Array> array = find(name);
    if (!array) {
      throw Error(ErrorCode::kMissingData, "is needed", fmt::format("array '{}'", name));
    }
    return *std::move(array);
  };
  AttentionCall call;
  call.q = get("q");
  call.k = get("k");
  call.v = get("v");
  if (const auto out = find("out")) call.out = *out;
  call.lse = find("lse");
  call.lse_kind = words.lse_base2 ? LseKind::kBase2 : LseKind::kNatural;
  call.mask = words.mask;
  call.mask_array = find("mask");
  call.scale = words.scale;
  call.softcap = words.softcap;
  call.sinks = find("sinks");
  call.alibi_slopes = find("alibi_slopes");
  call.layout = words.layout;
  call.lse_layout = words.lse_layout;
  call.k_scale = find("k_scale");
  call.v_scale = find("v_scale");
  call.cu_seqlens_q = find("cu_seqlens_q");
  call.cu_seqlens_k = find("cu_seqlens_k");
  call.cu_seqlens_q_padded = find("cu_seqlens_q_padded");
  call.cu_seqlens_k_padded = find("cu_seqlens_k_padded");
  call.block_table = find("block_table");
  call.block_starts = find("block_starts");
  call.kv_lens = find("kv_lens");
  return call;
}

// An object that may be let go without the GIL.
template <typename T>
std::shared_ptr<T> ReleasedWithGil(T* object) {
  return std::shared_ptr<T>(object, [](T* last) {
    const nb::gil_scoped_acquire gil;
    delete last;
  });
}

// Sums of a head in the host's memory, as kvcheck/_device.py has them.
class ArraySums : public HeadSums {
 public:
  // Errors: Error kMissingData for arrays that do not hold the rows and channels of the question.
  ArraySums(std::shared_ptr<const HeldArrays> held, const HeadQuestion& question)
      : held_(std::move(held)) {
    const bool rounds = question.rounded.any;
    const Array& numbers = held_->arrays().at("numbers");
    const Array& sums = held_->arrays().at("sums");
    using Extents = std::vector<int64_t>;
    const bool fits = numbers.extents == Extents{kNumbers, question.rows} &&
                      sums.extents == Extents{rounds ? 3 : 2, question.rows, question.channels} &&
                      IsDense(numbers) && IsDense(sums);
    if (!fits) throw Error(ErrorCode::kMissingData, "of another shape", "sums of a device");
    rows_ = numbers.extents[1];
    channels_ = static_cast<size_t>(sums.extents[2]);
    rounds_ = rounds;
    numbers_ = static_cast<const double*>(numbers.data);
    sums_ = static_cast<const double*>(sums.data);
  }

  std::optional<RowSums> Of(int64_t row) const override {
    const auto number = [&](int64_t i) { return numbers_[i * rows_ + row]; };
    const auto part = [&](int64_t i) {
      return std::span(sums_ + static_cast<size_t>(i * rows_ + row) * channels_, channels_);
    };
    RowSums sums;
    sums.max = number(0), sums.lowest = number(1), sums.x_largest = number(2);
    sums.denominator = number(3), sums.sink_e = number(4);
    const bool is_column = number(5) >= 0 && number(5) < 0x1p31;
    sums.heaviest = is_column ? static_cast<int32_t>(number(5)) : -1;
    sums.heaviest_e = number(6);
    sums.weight_squares = number(7), sums.other_weights = number(8);
    sums.o = part(0), sums.mass = part(1);
    if (rounds_) sums.squares = part(2);
    return sums;
  }

 private:
  static constexpr int64_t kNumbers = 9;

  static bool IsDense(const Array& array) {
    int64_t bytes = sizeof(double);
    for (size_t axis = array.extents.size(); axis-- > 0;) {
      if (!array.strides_bytes.empty() && array.extents[axis] > 1 &&
          array.strides_bytes[axis] != bytes) {
        return false;
      }
      bytes *= array.extents[axis];
    }
    return array.dtype == DType::kFloat64;
  }

  std::shared_ptr<const HeldArrays> held_;
  int64_t rows_ = 0;
  size_t channels_ = 0;
  bool rounds_ = false;
  const double* numbers_ = nullptr;
  const double* sums_ = nullptr;
};

template <typename T>
nb::bytes BytesOf(const std::vector<T>& values) {
  return nb::bytes(values.data(), values.size() * sizeof(T));
}

// asked: a function of a dict that returns one of arrays, or None.
DeviceSums DeviceOf(const nb::object& asked) {
  if (asked.is_none()) return {};
  const auto function = ReleasedWithGil(new nb::object(asked));
  return [function](const HeadQuestion& question) -> std::shared_ptr<const HeadSums> {
    const nb::gil_scoped_acquire gil;
    try {
      nb::dict words;
      words["batch"] = question.batch, words["kv_head"] = question.kv_head;
      words["scale"] = question.scale, words["softcap"] = question.softcap;
      words["sinks"] = question.sinks;
      words["rounds"] = question.rounded.any;
      words["normalised"] = question.rounded.normalised;
      words["least"] = question.rounded.least, words["most"] = question.rounded.most;
      words["first"] = BytesOf(question.seen->first);
      words["end"] = BytesOf(question.seen->end);
      words["visible"] =
          nb::cpp_function([seen = question.seen] { return BytesOf(seen->visible); });
      const nb::object answer = (*function)(words);
      if (answer.is_none()) return nullptr;
      const std::shared_ptr<const HeldArrays> held =
          ReleasedWithGil(new HeldArrays(nb::cast<nb::dict>(answer)));
      return std::make_shared<const ArraySums>(held, question);
    } catch (const nb::python_error& error) {
      throw Error(ErrorCode::kUnsupported, error.what(), "sums of a device");
    }
  };
}

// The output that decided, or the first.
const OutputVerdict* Decisive(const Verdict& verdict) {
  for (const OutputVerdict& output : verdict.outputs) {
    if (output.outcome == verdict.outcome) return &output;
  }
  return verdict.outputs.empty() ? nullptr : &verdict.outputs.front();
}

nb::object WorstOf(const Verdict& verdict) {
  const OutputVerdict* output = Decisive(verdict);
  if (output == nullptr || !output->worst) return nb::none();
  const ElementReport& e = *output->worst;
  nb::dict worst;
  worst["output"] = output->name;
  worst["element"] = e.element;
  worst["coordinates"] = e.coordinates;
  worst["got"] = e.got;
  worst["expected"] = e.expected;
  worst["error"] = e.error;
  worst["bound"] = e.bound + e.reference_bound;
  worst["ratio"] = e.ratio;
  return worst;
}

std::vector<std::string> HintsOf(const Verdict& verdict) {
  std::vector<std::string> hints;
  for (const OutputVerdict& output : verdict.outputs) {
    hints.insert(hints.end(), output.hints.begin(), output.hints.end());
  }
  return hints;
}

nb::object Values(ExpectedValues values) {
  nb::object value = PythonNumbers(std::move(values.value), values.extents);
  nb::object low = PythonNumbers(std::move(values.value_low), values.extents);
  return nb::make_tuple(value, low, PythonNumbers(std::move(values.bound), values.extents));
}

std::vector<std::string> Texts(std::span<const std::string_view> texts) {
  return {texts.begin(), texts.end()};
}

// Verdicts as the summary of a step on GitHub.
class StepSummary {
 public:
  explicit StepSummary(const std::string& title) : report_(title, TextOptions{}) {}
  void Add(const std::string& name, const Verdict& verdict) {
    CaseResult result;
    result.name = name;
    result.verdict = verdict;
    summary_.Add(result, false);
    report_.Add(result);
  }
  std::string Markdown() const { return report_.Markdown(summary_); }
  std::string Annotations() const { return report_.Annotations(); }

 private:
  GithubReport report_;
  Summary summary_;
};

void BindVerdict(nb::module_& m) {
  nb::class_<Verdict>(m, "Verdict")
      .def_prop_ro("outcome", [](const Verdict& v) { return std::string(Name(v.outcome)); })
      .def_prop_ro("passed", [](const Verdict& v) { return v.outcome == Outcome::kPass; })
      .def_prop_ro("exit_code", [](const Verdict& v) { return ExitCodeOf(v); })
      .def_ro("reasons", &Verdict::reasons)
      .def_ro("case", &Verdict::case_text)
      .def_ro("plan", &Verdict::plan)
      .def_ro("profile", &Verdict::profile)
      .def_rw("command", &Verdict::command)
      .def_rw("implementation", &Verdict::implementation)
      .def_prop_ro("worst", WorstOf)
      .def_prop_ro("bound",
                   [](const Verdict& v) -> nb::object {
                     const OutputVerdict* output = Decisive(v);
                     if (output == nullptr || !output->worst) return nb::none();
                     return nb::float_(output->worst->bound + output->worst->reference_bound);
                   })
      .def_prop_ro("hints", HintsOf)
      .def_prop_ro("passes_with", PassesWith)
      .def_prop_ro("warnings",
                   [](const Verdict& v) {
                     std::vector<std::string> all = v.warnings;
                     for (const OutputVerdict& output : v.outputs) {
                       all.insert(all.end(), output.warnings.begin(), output.warnings.end());
                     }
                     return all;
                   })
      .def("to_json", [](const Verdict& v) { return JsonOf(v); })
      .def("text", &TextOf, "verbose"_a = false)
      .def("_repr_html_", [](const Verdict& v) { return HtmlFragment(v); })
      .def("__str__", [](const Verdict& v) { return TextOf(v); })
      // Neither answer would be right of MISTRUSTED, and an object without this is true.
      .def("__bool__",
           [](const Verdict& v) -> bool {
             const std::string text = fmt::format(
                 "a Verdict is neither true nor false: ask .passed, or compare .outcome, which is "
                 "{} here",
                 Name(v.outcome));
             throw nb::type_error(text.c_str());
           })
      .def("__getstate__",
           [](const Verdict& v) {
             const std::string state = StateOf(v);
             return nb::bytes(state.data(), state.size());
           })
      .def("__setstate__",
           [](Verdict& self, const nb::bytes& state) {
             new (&self) Verdict(VerdictOf(std::string_view(state.c_str(), state.size())));
           })
      .def("__repr__", [](const Verdict& v) {
        const std::string text = TextOf(v);
        return "<kvcheck.Verdict " + text.substr(0, text.find('\n')) + ">";
      });
  nb::class_<HtmlReport>(m, "HtmlReport")
      .def(nb::init<std::string>(), "title"_a)
      .def(
          "add",
          [](HtmlReport& report, const std::string& name, const Verdict& verdict) {
            CaseResult result;
            result.name = name;
            result.verdict = verdict;
            report.Add(result);
          },
          "name"_a, "verdict"_a)
      .def("add_table", &HtmlReport::AddTable, "title"_a, "note"_a, "columns"_a, "rows"_a)
      .def(
          "write",
          [](const HtmlReport& report, const std::string& path) {
            const nb::gil_scoped_release released;
            report.Write(path);
          },
          "path"_a);
  nb::class_<StepSummary>(m, "StepSummary")
      .def(nb::init<std::string>(), "title"_a)
      .def("add", &StepSummary::Add, "name"_a, "verdict"_a)
      .def("markdown", &StepSummary::Markdown)
      .def("annotations", &StepSummary::Annotations);
}

void BindQuestions(nb::module_& m) {
  nb::class_<Settings>(m, "Settings")
      .def(
          "__init__",
          [](Settings* self, const std::string& plan, const std::string& profile, bool strict,
             const std::string& rule, const std::string& must_see, int threads, int64_t rows,
             uint64_t seed, const std::string& save) {
            new (self) Settings(
                MakeSettings(plan, profile, strict, rule, must_see, threads, rows, seed, save));
          },
          "plan"_a, "profile"_a, "strict"_a, "rule"_a, "must_see"_a, "threads"_a, "rows"_a,
          "seed"_a, "save"_a);
  nb::class_<CallWords>(m, "CallWords")
      .def(nb::init<>())
      .def_rw("mask", &CallWords::mask)
      .def_rw("scale", &CallWords::scale, "value"_a.none())
      .def_rw("softcap", &CallWords::softcap, "value"_a.none())
      .def_rw("layout", &CallWords::layout)
      .def_rw("lse_layout", &CallWords::lse_layout)
      .def_rw("lse_base2", &CallWords::lse_base2);
  m.def(
      "judge_attention",
      [](const nb::dict& arrays, const CallWords& words, const Settings& settings,
         const nb::object& device_sums) {
        const auto held = std::make_shared<const HeldArrays>(arrays);
        AttentionCall call = CallOf(held->arrays(), words);
        call.device_sums = DeviceOf(device_sums);
        return Judged(settings, [held, call = std::move(call)](const Settings& s) {
          return JudgeAttention(call, s);
        });
      },
      "arrays"_a, "words"_a, "settings"_a, "device_sums"_a = nb::none());
  m.def(
      "reference_attention",
      [](const nb::dict& arrays, const CallWords& words, const std::string& out_type, bool lse,
         const Settings& settings) {
        const auto held = std::make_shared<const HeldArrays>(arrays);
        AttentionCall call = CallOf(held->arrays(), words);
        const std::optional<DType> type = ParseDType(out_type);
        if (!type) throw Error(ErrorCode::kParse, "is no type", out_type);
        call.out.dtype = *type;
        if (lse) call.lse.emplace();
        auto values = Judged(
            settings, [held, call](const Settings& s) { return ReferenceAttention(call, s); });
        nb::dict result;
        for (auto& [name, output] : values) result[name.c_str()] = Values(std::move(output));
        return result;
      },
      "arrays"_a, "words"_a, "out_type"_a, "lse"_a, "settings"_a);
  m.def(
      "judge_case",
      [](const std::string& text, const nb::dict& inputs, const nb::dict& outputs,
         const Settings& settings) {
        const auto held = std::make_shared<const HeldArrays>(inputs);
        const auto answered = std::make_shared<const HeldArrays>(outputs);
        return Judged(settings, [text, held, answered](const Settings& s) {
          return JudgeCase(text, held->arrays(), answered->arrays(), s);
        });
      },
      "case"_a, "inputs"_a, "outputs"_a, "settings"_a);
  m.def(
      "judge_arrays",
      [](const nb::dict& arrays, const std::string& rule, const Settings& settings) {
        const auto held = std::make_shared<const HeldArrays>(arrays);
        return Judged(settings, [held, rule](const Settings& s) {
          return JudgeArrays(held->arrays().at("want"), held->arrays().at("got"), rule, s);
        });
      },
      "arrays"_a, "rule"_a, "settings"_a);
  m.def(
      "judge_stored_rows",
      [](const nb::dict& x, const nb::dict& stored, const std::string& format,
         const Settings& settings) {
        const auto held = std::make_shared<const HeldArrays>(x);
        const auto got = std::make_shared<const HeldArrays>(stored);
        return Judged(settings, [held, got, format](const Settings& s) {
          return JudgeStoredRows(held->arrays().at("x"), got->arrays(), format, s);
        });
      },
      "x"_a, "stored"_a, "format"_a, "settings"_a);
  m.def(
      "encode",
      [](const nb::dict& x, const std::string& format, const Settings& settings) {
        const auto held = std::make_shared<const HeldArrays>(x);
        return PythonTensors(Judged(settings, [held, format](const Settings& s) {
          return EncodeRows(held->arrays().at("x"), format, s);
        }));
      },
      "x"_a, "format"_a, "settings"_a);
  m.def(
      "decode",
      [](const nb::dict& planes, const std::string& format, const std::string& rows, int64_t d,
         const Settings& settings) {
        const auto held = std::make_shared<const HeldArrays>(planes);
        const std::optional<DType> type = ParseDType(rows);
        if (!type) throw Error(ErrorCode::kParse, "is no type", rows);
        return PythonTensor(Judged(settings, [held, format, type, d](const Settings& s) {
          return DecodeRows(held->arrays(), format, *type, d, s);
        }));
      },
      "planes"_a, "format"_a, "rows"_a, "d"_a, "settings"_a);
  m.def(
      "draw",
      [](const std::string& text, const Settings& settings) {
        return PythonTensors(
            Judged(settings, [text](const Settings& s) { return DrawInputs(text, s); }));
      },
      "case"_a, "settings"_a);
  m.def(
      "answer",
      [](const std::string& text, const nb::dict& inputs, const std::string& implementation,
         const Settings& settings) {
        const auto held = std::make_shared<const HeldArrays>(inputs);
        return PythonTensors(Judged(settings, [held, text, implementation](const Settings& s) {
          return AnswerCase(text, held->arrays(), implementation, s);
        }));
      },
      "case"_a, "inputs"_a, "implementation"_a, "settings"_a);
}

void BindLists(nb::module_& m) {
  m.def("formats", [] {
    std::vector<std::string> texts;
    for (const KvFormat& format : AllKvFormats()) texts.push_back(Print(format));
    return texts;
  });
  // (names of planes, channels of a block, type of rows)
  m.def(
      "format_facts",
      [](const std::string& text) {
        const KvFormat format = ParseKvFormat(WholeLine(text));
        return std::tuple(PlaneNames(format), BlockOf(format), std::string(Name(RowDType(format))),
                          IsPlain(format));
      },
      "format"_a);
  m.def("plans", [] {
    std::vector<std::pair<std::string, std::string>> plans;
    for (const KnownPlan& plan : KnownPlans()) {
      plans.emplace_back(std::string(plan.name), std::string(plan.reason));
    }
    return plans;
  });
  m.def("attention_regimes", [] { return Texts(AttentionRegimes()); });
  m.def("row_regimes", [] { return Texts(RowRegimes()); });
  m.def("version", ToolVersion);
}

}  // namespace

NB_MODULE(_core, m) {
  m.doc() = "The judge of kvcheck. Use the package kvcheck, which documents it.";
  // (message, context, code) as the arguments of an exception that kvcheck/_errors.py defines.
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      const nb::object type = nb::module_::import_("kvcheck._errors").attr("Error");
      const nb::object value = type(error.what(), std::string(Name(error.code())), error.context());
      PyErr_SetObject(type.ptr(), value.ptr());
    }
  });
  BindVerdict(m);
  BindQuestions(m);
  BindLists(m);
  // Calls that Ctrl-C left to themselves.
  m.def("left_calls", [] { return LeftWork::All().running(); });
  // Work that comes to no place where it stops before a byte can be read, for the test of the rest.
  m.def(
      "wait_for_byte",
      [](int descriptor) {
        return Released([descriptor](const std::function<bool()>&) {
          char byte = 0;
          ssize_t got;
          while ((got = read(descriptor, &byte, 1)) < 0 && errno == EINTR) {
          }
          return got == 1;
        });
      },
      "descriptor"_a);
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
    const nb::gil_scoped_release released;
    LeftWork::All().Wait();
  }));
}

}  // namespace kvcheck
