"""Words of heads and names: what a column is, in which direction a measure goes, and what a name stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from functools import cache


def _terms(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _ordered(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Heads of columns, without capitals and signs; the first of two that a table has counts.
METHODS = _ordered("""
    method methods algorithm algorithms model models classifier estimator approach system learner modelname
    methodname network technique optimizer row attack attacks defense detector approaches modèle modele méthode
    methode modell verfahren modelo método metodo modello 模型 方法 算法 モデル 手法 모델 방법 модель метод alg algo
    modelid modelfullname submission entry participant strategy loss regularizer umlmodel agent name
""")
DATASETS = _ordered("""
    downstreamdataset testdataset dataset datasets data downstreamtask task tasks benchmark problem domain
    environment env testset evalset set datasetname taskname corpus envid column datensatz jeudedonnées 数据集 任务
    データセット 데이터셋 target targetdomain testdomain testenv category categories corruption subset groups group
    evaldataset attribute attributes evaluation shift language targets domains environments corruptions class object
    scenario benchmarks
    данные
""")
METHOD_NOUNS = _terms("method methods model models llm algorithm algorithms config classifier network detector")
PARTS = _terms("domain environment env shift corruption subset category target testenv testdomain")
BLOCKS = _ordered("block benchmark suite collection datasetgroup dataset data family")
METRICS = _ordered("metric metrics measure measures criterion metricname evaluationmetric 指标 métrique metrik")
SEEDS = _ordered("seed seeds randomseed run trial fold repeat repetition replicate randomstate")
SCORES = _ordered("""
    score scores accuracy acc value metric result performance mean f1 auc auroc error loss testaccuracy testacc top1
    bleu mse rmse exactmatch wert valeur
""")
SPREADS = _terms("""
    std sd stdev stddev deviation se sem stderr var variance ci ci95 ± pm standarddeviation standarderror err
    uncertainty moe σ stds standard
""")
STANDARD_ERRORS = _terms("se sem stderr standarderror")
LOWER_LIMITS, UPPER_LIMITS = _terms("low lower lb lo lwr"), _terms("high upper ub hi upr")
INTERVALS = _terms("ci interval bound bounds limit limits conf confidence binomial bootstrap 95")
REFERENCES = _terms("""
    reference references ref refs paper citation venue published publication journal conference pub code link links
    url github author authors submitted submitter team org organization license date updated notes note comment
    comments remark remarks description sponsor affiliation institution website repo checkpoint weights config
    download log logs doi arxiv bibtex hash commit file path name
""")
TEXTS = _terms("type types source category kind group open license standalone winner interpolation")
VARIANTS = _terms("""
    backbone backbones decoder architecture arch encoder pretraining pretrained init variant transformation setting
    settings configuration mode version augmentation features
""")
COSTS = _terms("""
    params param parameters parameter paramètres 参数 参数量 flops flop macs gmacs mmacs macts gflops mflops size
    sizes latency latencies throughput throughputs fps speed memory mem vram cpu cpus gpu gpus epoch epochs
    steps step iter iters iterations batch lr resolution res crop hidden layers depth tokens length
    samples images votes cost price downloads likes 大小 ep runtime wallclock hours seconds secs ms minutes
    duration dim dims dimension width height workers warmup weight momentum dropout nodes edges context
    energy watts co2 qps parámetros parametri параметры patch coef freq gamma lambda util utilization
    sparsity maccs madds
""")
TIMES = _terms("time latency runtime seconds fps speed throughput")
POSITIONS = _terms("place position pos")  # ranks if they are whole numbers: `POS` is also a task
UNITS = _terms("s ms us sec secs min h mb gb kb g per page pages sample samples image images img token tokens usd")
RANKS = _terms("rank ranks ranking rang rango 排名") | POSITIONS
GAINS = _terms("gain gains improvement improv improve delta diff difference change impr")
# Heads of results that others reported, beside those of the table.
ELSEWHERE = _terms("origin report reported paper published official papernumber originalpaper originalwork")
AVERAGES = _terms("""
    avg average averages mean moyenne mittelwert durchschnitt promedio media média 平均 平均分 平均值 均值 среднее
    gemiddelde avgs means 평균 ave aver mittel median
""")
OF_RUNS = _terms("mean avg average")  # said of the mean of runs, beside a deviation
_MEAN = re.compile(rf"(?i)[\s_./-]*(?:\b|(?<=_))(?:{'|'.join(OF_RUNS)})\.?$")
MAYBE_AVERAGES = _terms("overall total all score final summary aggregate macro 综合 总分 gesamt")
_AVERAGE_FILLERS = _terms("""
    acc accuracy score scores all over of the domains datasets tasks sets across error rate performance top 1 top1
    test total overall result results perf err 5 6 4 7 8 10 3 map f1 auroc auc iou miou dice psnr mean
""")
COUNTED_SETS = re.compile(r"\b\d+\s+(?:data\s?sets|tasks|benchmarks)\b", re.I)  # `average on 38 datasets`
# Words of measures: of which more is better, and of which less.
HIGHER = _terms("""
    acc accuracy f1 f2 auc auroc aupr auprc roc ap map precision recall em exact match bleu rouge rougel rouge1
    rouge2 meteor cider spice ndcg mrr hits hit iou miou dice oa aa mf1 kappa nmi ari psnr ssim pearson spearman
    kendall corr correlation mcc top1 top5 top specificity sensitivity tpr tnr maph consistency aurra comet
    bertscore wr winrate elo r2 reactivity pq sq rq pckh pck pass worst fid50k likelihood reward return coverage
    准确率 精度 正确率 aupro pro 召回率 精确率 精准率 再現率 適合率 正解率 정확도 точность rappel précision
    genauigkeit exactitud precisión précisions adjr2 wup aucroc prauc rocauc average_precision balanced p r ccr oscr
    hter95 harmonic sdr sdri snr snri sisnr sisdr sisdri pesq stoi acc1 acc5 gps gpsm nds success sr spl cka
    silhouette jaccard purity fscore fmeasure tnr95 hmean δ1 δ2 δ3 uas las jga
    pearsons anmi lc mota motp hota idf1 amota minp
""")
LOWER = _terms("""
    error errors err loss mse rmse mae mape nll ece brier perplexity ppl wer cer fid seconds time latency runtime
    mce regret rank smape nmse ter lpips fpr fpr95 fpr80 fnr fp fn far frr eer hter hallucination epe mpjpe pampjpe
    mpvpe ace mcce sce aurc eaurc kld kl gap disparity deo dpd crps distance chamfer cd emd bpd bpc hd95 assd
    variance forgetting fm degradation drop toxicity fehler erreur 误差 错误率 ошибка nrmse wape mase rce rmce arerr
    der dcf mindcf gerr absrel sqrel silog
""")
CLEAR_MEASURES = _terms(
    "accuracy acc f1 auc auroc map miou iou bleu score 准确率"
)  # also with a setting: `accuracy with crop`
# Words of measures that names of data sets also have.
AMBIGUOUS = _terms("""
    distance time gap drop rank match hit return coverage success purity pro top p r aa oa em cd fm map worst exact
    pass balanced fn fp ace far miss der
""")
WEAK = _terms("p r top top1 top5 worst match exact hit pass")  # words that alone say no direction
_FILLERS = _terms("""
    test best macro micro mean avg average score scores rate at k per class overall weighted natural robust clean
    standard top 1 5 10 20 50 100 95 a m b classes final group wg val valid validation dev train pixel image true
    positive negative false absolute squared root relative calibration expected id ood and the of rel adversarial
    certified metric l s e 3d 2d mm px w conflicting aligned unbiased biased target source bal in under curve area
    eval binary norm normalized strict cosine main obs log linear probe knn box bbox mask segm tta cal highest
    lowest float int8 fp16 fp32 region si db finetune finetuned finetuning fine tune tuned tuning online offline kp
    dp keypoint pix detok text retrieval boundary entity
    span char slot ss ms
""")
_EXTRA = re.compile(
    r"ap_?[smlrcf]|r[12l]|[a-z]{1,9}@\d+|(?:precision|recall|ndcg|map|mrr|hits?|acc|pass|top|fpr|mr|hr|auc|ap|f)[@-]?\d+",
    re.I,
)
_RANK_AT = re.compile(r"rank\s?[@-]?\s?\d+", re.I)  # share of queries whose match is among the first
VALIDATION = _terms("val valid validation dev development 开发集 验证集 eval_dev validationset")
TRAINING = _terms("train training 训练集 trainset")
TEST = _terms("test testing 测试集 eval evaluation held out te")
_SPLIT_FILLERS = _terms("set split acc accuracy best highest final score scores")
SHOTS = r"(?:[0-9]+[- ]?(?:shots?|ways?)[\s,]*)+"
GENERIC = _terms("""
    dataset datasets target targets domain domains method methods test benchmark task benchmarks tasks targetdomain
    testdomain testdomains targetdomains results performance source algorithms evaluation testset testsets
    evaluationdatasets heldoutdomain unseendomain targetdataset targetdatasets scores models model algorithm
    approach group categories ooddatasets testenvironment leaveonedomainout testenv classificationtasks 数据集
    category downstreamtasks downstreamdatasets datensätze jeuxdedonnées targetdomainaccuracy value values
""")
# Names of groups of data sets; a rest beside data sets says nothing about these.
GROUPS = _terms("""
    ood id structured natural specialized math mathematics reading commonsense reasoning code coding knowledge near
    far general understanding comprehension language tasks datasets benchmarks
""")
RESTS = _terms("others other misc miscellaneous")
# First words of a second line of the head.
SECOND_HEADS = _terms("""
    target targets targetdomain testdomain domain domains dataset datasets task tasks metric metrics measure
    measures corruption severity level category split
""")
PROPERTIES = _terms("""
    shift shifts classes images samples domains size ratio instances examples train test features nodes edges labels
    length resolution license year type val snt wrd sub del ins corr num user users item items inter interactions
    sparsity density entities relations triples
""")
# Classes of a data set that were seen in training, or not: heads that are no methods.
SEEN_CLASSES = _terms("all old new seen unseen known unknown novel")
# Marks of a cell without a score, in small letters.
MISSING = _terms(r"""
    - -- --- – — ― nan na n/a n.a. none null ? / \ tbd tba oom oot dnf nr n.r. missing * ... … x × n.d. nil
    undefined -/- –/– —/— timeout fail failed <na> #n/a #na
""") | {"", "- -", "- / -", "not reported"}
FLAGS = _terms("yes no true false ✓ ✗ √ × x -")
# Last words of a line of a table of settings.
LAST_OF_SETTINGS = _terms("lr epoch epochs dropout momentum optimizer iterations warmup steps")
TWO_OF_SETTINGS = {("learning", "rate"), ("weight", "decay"), ("batch", "size"), ("image", "size"), ("hidden", "size")}
_OF_COST = re.compile(
    r"^number of |[(\[]\s*(?:days?|hours?|hrs?|h|mins?|minutes|s|secs?|seconds|ms|[kmg]?wh|[kmg]i?b|[tgm]?flops(?:/s)?)"
    r"\s*[)\]]",
    re.I,
)
_LANGUAGE = "(?:ar|bg|cs|da|de|el|en|es|et|fi|fr|gu|hi|hu|it|ja|ko|lt|lv|nl|pl|pt|ro|ru|sv|tr|uk|vi|zh)"
# Names of data sets in which words of measures and costs say nothing: DROP, GAP, `drop f1`, `Latency-Bench`.
_NAMED_SETS = re.compile(r"(?:DROP|GAP)\b|(?i:(?:drop|gap)[\W_]+(?:f1|em|accuracy)\b|.*(?:bench|qa)$)")
# Names of data sets and of methods that are usual in the field.
OF_DATA = re.compile(
    r"imagenet|cifar|mnist|svhn|\bpacs|vlcs|office|terra|domainnet|celeba|waterbirds|\bcoco\b|glue|squad|mmlu|gsm8k|"
    r"hellaswag|xnli|tydi|quad\b|winogrande|truthfulqa|piqa|boolq|openml|sketch|stylized|silhouette|cue.?conflict|camelyon|wilds|fmow|"
    r"iwildcam|inaturalist|places|\bdtd\b|caltech|food.?101|pets\b|flowers|aircraft|stl.?10|stanford|\bsun\d|eurosat|resisc|"
    r"civilcomments|multinli|\bmnli|\bsst|\bqnli|\bqqp|\brte\b|\bcola\b|textures?\b|\blsun|visda|cityscapes|\bade20k|"
    r"\bvoc\b|kvasir|\betis|clinicdb|bottle|transistor|toothbrush|\barc\b|humaneval|mbpp|\bbbh\b|c-?eval|cmmlu|cora\b|"
    r"citeseer|pubmed|ogbn|walker2d|hopper|halfcheetah|antmaze|usps|gauss|\bfog\b|frost|jpeg|afhq|ffhq|kitti|\bnyu|"
    r"conll|ontonotes|\bwnut|vqa|\bgqa\b|vizwiz|\bpope\b|mm-?bench|wiki-?cs\b|"
    r"tatoeba|flores|\bwmt|librispeech|physionet|\bucr\b|adult\b|german credit|housing|wine\b|\biris\b|"
    rf"[a-z]\s?(?:→|->|⇒)\s?[a-z]|\b{_LANGUAGE}[-–]{_LANGUAGE}\b",
    re.I,
)
BACKBONES = re.compile(
    r"resnet|\bresnext|\bvit|swin|convnext|densenet|\bdeit|\bvgg|alexnet|mobilenet|efficientnet|\bclip\b|clip-|"
    r"\bdino|regnet|inception|\bbit-|\bbeit|mixer|wide.?res|\bwrn|\bbert\b|roberta|googlenet|cait\b|xception|\bgcn\b|\bgin\b",
    re.I,
)
OF_SPLITS = re.compile(r"(?:^|[ _])(?:test|eval|valid|val|dev)(?=[\W_\d]|$)", re.I)  # `test-clean` is a data set
OF_METHODS = re.compile(
    r"\bmodel\b|(?:fix|mix|flex)match|pseudo.?label|mean.?teacher|\bsupervised\b|\bvat\b|\bmethod\b|\bclassifier\b|\berm\b|\birm\b|group.?dro|\bcoral\b|\bdann\b|\bcdan|\bmldg\b|sagnet|\bswad\b|\bmiro\b|\bvrex\b|\bmmd\b|\brsc\b|"
    r"mixstyle|\bmixup|cutmix|augmix|randaugment|deepaugment|infodrop|padain|\btent\b|\bcotta\b|\beata\b|\brotta\b|\blame\b|"
    r"llama|\bgpt|mistral|qwen|gemini|claude|\bsvm\b|forest|boost|\bknn\b|1nn|naive.?bayes|logistic|baseline|\bours\b|\(ours\)|"
    r"\bmlp\b|decision.?tree|\bc4\.?5\b|\bjtt\b|\bdfr\b|\blff\b|\bcql\b|\biql\b|td3|\bsac\b|\bppo\b|\bdqn\b|\bbc\b|"
    r"\bmcd\b|\bmdd\b|\bjan\b|\badda\b|\bfcn\b|\blstm\b|\bgru\b|transformer|\bours$|\bsource.?only\b|vanilla|"
    r"\bmsp\b|\bodin\b|energy|mahalanobis|\bvim\b|\breact\b|\bsimclr|\bmoco|\bbyol|\bpgd\b|\bfgsm\b|trades|"
    r"\bcatboost|random forest|\birt\b",
    re.I,
)


@cache
def split_words(name: str) -> tuple[str, ...]:
    """Return the words of a name in small letters, without signs."""
    return tuple(re.findall(r"[^\W_]+", name.lower()))


@cache
def letters(name: str) -> str:
    """Return the letters and digits of a name, small."""
    return "".join(split_words(name))


def says(name: str, heads: Sequence[str]) -> bool:
    """Return True if a head is one of these."""
    return letters(name) in heads


def has_word(name: str, vocabulary: Set[str]) -> bool:
    return not vocabulary.isdisjoint(split_words(name))


def arrow(text: str) -> str:
    """Return yes or no for an arrow, or words in brackets, that say which direction is better; else empty."""
    if "↑" in text or re.search(r"higher (is|=) better|\(higher\b", text, re.I):
        return "" if "↓" in text else "yes"
    return "no" if "↓" in text or re.search(r"lower (is|=) better|\(lower\b", text, re.I) else ""


def without_arrow(text: str) -> str:
    """Return a head without arrows."""
    text = re.sub(r"\(\s*[↑↓]\s*\)|[↑↓]", " ", text)
    return " ".join(text.split()).strip()


def without_unit(text: str) -> str:
    """Return a head without arrows and signs of per cent."""
    return without_arrow(re.sub(r"[(\[]\s*\\?%?\s*[)\]]|%", " ", text))


def direction(name: str) -> str:
    """Return yes if more of what a name says is better, no if less is, and nothing if it does not say."""
    by_arrow = arrow(name)
    if by_arrow:
        return by_arrow
    name = without_unit(name)
    if _RANK_AT.fullmatch(name):
        return "yes"
    measure, at, _ = name.partition("@")  # `TPR @ FPR 0.01`
    if at and (of_measure := direction(measure)):
        return of_measure
    spoken = set(split_words(name))
    if "consistency" in spoken or "silhouette" in spoken:
        return "yes"
    if not is_metric(name):
        spoken -= AMBIGUOUS - {"gap"} if re.search(r"\w[\s_-]gap$", name, re.I) else AMBIGUOUS
    if names_set(name):
        spoken -= LOWER
    if spoken & LOWER:
        return "no"
    if any(word.startswith("fpr") or word.endswith(("error", "loss")) for word in spoken):
        return "no"
    if spoken & (HIGHER - WEAK) or _is_extra(name, spoken):
        return "yes"
    return ""


def _is_extra(name: str, spoken: Set[str]) -> bool:
    """Return True for `R@5`, `AP50 (box)` and the like."""
    if is_metric(name) and any(word.startswith("ap") and _EXTRA.fullmatch(word) for word in spoken):
        return True
    return bool(_EXTRA.fullmatch(name.strip())) and ("@" in name or not spoken & WEAK)


def names_set(name: str) -> bool:
    """Return True for the name of a data set that holds a word of measures or costs."""
    return bool(_NAMED_SETS.match(name))


@cache
def is_metric(name: str) -> bool:
    """Return True if a name is that of a measure, and of nothing else."""
    text = without_unit(name)
    if names_set(text):
        return False
    if _EXTRA.fullmatch(text.strip()) or _RANK_AT.fullmatch(text):
        return True
    spoken = [word for word in split_words(text) if not word.isdigit()]
    if not spoken:
        return False
    core = [word for word in spoken if (len(word) > 1 and (word in HIGHER or word in LOWER)) or _EXTRA.fullmatch(word)]
    return bool(core) and all(word in core or word in _FILLERS for word in spoken)


def is_measure_like(name: str) -> bool:
    """Return True if a name has no words but those of measures, scores and parts of data."""
    spoken = [word for word in split_words(name) if not word.isdigit()]
    return any(len(word) > 1 for word in spoken) and all(
        word in HIGHER or word in LOWER or word in _FILLERS or word in PROPERTIES for word in spoken
    )


@cache
def average_kind(name: str) -> str:
    """Return how a name says that it averages other columns: `sure`, `partly` (some of them), `maybe`, or nothing."""
    spoken = split_words(re.sub(r"[(\[].*?[)\]]|%", " ", name))
    if not spoken:
        return ""
    if spoken[0] in AVERAGES or spoken[-1] in AVERAGES:
        rest = [word for word in spoken if word not in AVERAGES]
        if not rest:
            return "sure"
        if all(word in _AVERAGE_FILLERS for word in rest):
            return "sure" if "_" not in name else "maybe"
        return "maybe" if is_metric(name) or "_" in name else "partly"
    is_overall = spoken[0] == "overall" and is_metric(" ".join(spoken[1:]))
    return "maybe" if is_overall or all(word in MAYBE_AVERAGES for word in spoken) else ""


def is_setting(name: str) -> bool:
    """Return True for the name of a setting, a cost or a size of data, as a line of a table of these has it."""
    spoken = split_words(re.sub(r"[(\[].*?[)\]]", "", name))
    if _OF_COST.search(name) or name.startswith("--"):  # `--lr`
        return True
    if spoken and PROPERTIES.union(("num", "number", "of", "dev", "timesteps")).issuperset(spoken):
        return True
    return spoken[-2:] in TWO_OF_SETTINGS or (bool(spoken) and spoken[-1] in LAST_OF_SETTINGS)


def is_language(name: str) -> bool:
    """Return True for the code of a language, as in columns of a multilingual data set."""
    return bool(re.fullmatch(rf"{_LANGUAGE}|th|sw|ur|he|id|ta|te|fa|eu|bn|ka|kk|ml|mr|my|ms|ca|af", name, re.I))


def is_shots(name: str) -> bool:
    """Return True for a number of examples a class: `5-shot`, `1-shot 5-way`."""
    return bool(re.fullmatch(SHOTS, name.lower()))


def is_variant(name: str) -> bool:
    """Return True for the head of what a method was made of: a backbone, a setting, or data of the training."""
    spoken = set(split_words(name))
    return bool(spoken & (VARIANTS | REFERENCES | {"pretrain", "training", "trained", "train"}))


def are_flags(texts: Iterable[str]) -> bool:
    """Return True for texts that say only yes or no."""
    return {text.casefold() for text in texts if text} <= FLAGS


def is_ablation(name: str) -> bool:
    """Return True for the head of methods with or without a part: `w/o augmentation`, `test (after tuning)`."""
    return bool(re.match(r"(?:w/o?|with|without)\s|(?:.*\()?(?:before|after)\b", name, re.I))


def without_mean(name: str) -> str:
    """Return a head without the word at its end that says that it is the mean of something."""
    return _MEAN.sub("", name)


def is_from_elsewhere(name: str) -> bool:
    """Return True for the head of results that others reported: `Original`, `Reference top1`."""
    spoken = split_words(name)
    return letters(name) in ELSEWHERE or (
        bool(spoken) and spoken[0] in ELSEWHERE | {"original", "reference", "ref"} and is_metric(" ".join(spoken[1:]))
    )


def is_rank(name: str) -> bool:
    spoken = split_words(name)
    if not spoken or spoken[-1] not in RANKS - {"pos"}:  # a task
        return False
    return len(spoken) == 1 or spoken[0] in AVERAGES | MAYBE_AVERAGES


def split_kind(name: str) -> str:
    """Return val, train or test if a name is that of a part of the data, else nothing."""
    spoken = set(split_words(re.sub(r"\([^()]*\d[^()]*\)", " ", name)))  # `Val (900)`
    if spoken and spoken <= VALIDATION | _SPLIT_FILLERS and spoken & VALIDATION:
        return "val"
    if spoken and spoken <= TRAINING | _SPLIT_FILLERS and spoken & TRAINING:
        return "train"
    if spoken and spoken <= TEST | _SPLIT_FILLERS | {"p", "std", "public", "private"} and spoken & TEST:
        return "test"
    return ""
